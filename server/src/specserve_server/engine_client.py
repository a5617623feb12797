"""What the server needs of an engine, as protocols. The server and its tests use nothing else of it.

An `EngineClient` is what routes are given, wherever the engine runs. `LoadedEngine` is one in this process, such as
`specserve.engine.async_engine.AsyncEngine`; with its chat template it is a `ServedEngine`, which plugins are given. No
implementation here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import TypeVar

    from aiohttp import web

    from specserve.batch.request import Request
    from specserve.engine.admission import EngineLimits
    from specserve.engine.mailbox import Mailbox
    from specserve.metrics import AdapterUse, CacheInfo, EngineMetrics
    from specserve.protocols import AnswerCheck, Metric, ResolvedModel, TextStream
    from specserve.types import GenerateRequest, RequestOutput
    from specserve_checks.json_types import JsonObject, JsonValue
    from specserve_server.engine_answers import EngineState, ModelLookup
    from specserve_server.templates.model_template import ModelTemplate

    T = TypeVar("T")

Status = Literal["loading", "ready", "draining", "dead"]


class ServerTokenizer(Protocol):
    """`specserve.text.tokenizer.HfTokenizer` is one. `sampling_defaults` are generation_config.json's."""

    @property
    def path(self) -> Path | None:
        """The directory that it was read from, where its chat template is, too."""
        ...

    @property
    def sampling_defaults(self) -> Mapping[str, float]: ...

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...

    def encode_in_background(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str: ...

    def stream(self, prompt_ids: Sequence[int], *, skip_special_tokens: bool = True) -> TextStream: ...

    def echo_stream(self, prompt_ids: Sequence[int], *, skip_special_tokens: bool = True) -> TextStream: ...

    def echo_text(self, prompt_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str: ...

    def shows(self, token_id: int, *, skip_special_tokens: bool = True) -> bool: ...

    def token_text(self, token_id: int, *, first: bool = False) -> str: ...

    def token_bytes(self, token_id: int, *, first: bool = False, skip_special_tokens: bool = True) -> bytes: ...

    @property
    def tokenizer_class(self) -> str | None: ...

    def is_special(self, text: str) -> bool: ...


class ServerPlugins(Protocol):
    """What the server needs of `specserve.plugins.host.PluginHost`."""

    def describe(self) -> Sequence[JsonObject]: ...

    def collect(self, hook: str, **arguments: object) -> Iterable[tuple[str, object]]: ...

    def try_collect(
        self, hook: str, parse: Callable[[Any], T], **arguments: object
    ) -> tuple[list[tuple[str, T]], list[str]]:
        """Parsed results with the names of their plugins, and the names of the plugins that failed."""
        ...

    def guard(self, plugin: str, name: str, action: Callable[[], object]) -> Callable[[], None]: ...


class RunningEngine(Protocol):
    """Requests and their outputs. Closing the generator of `submit` aborts the request."""

    @property
    def tokenizer(self) -> ServerTokenizer: ...

    @property
    def model_name(self) -> str: ...

    @property
    def max_model_len(self) -> int: ...

    @property
    def output_kinds(self) -> frozenset[str]:
        """The kinds of structured output that are enforced."""
        ...

    @property
    def num_requests(self) -> int:
        """Requests that were submitted and have not ended: they run or wait."""
        ...

    @property
    def created(self) -> int:
        """When the engine was loaded, in seconds since the epoch."""
        ...

    @property
    def status(self) -> Status: ...

    def check(self, request: GenerateRequest) -> None:
        """Raise a `RequestError` unless the request can be served. Not in the event loop: an engine in another process
        is asked."""
        ...

    def submit(self, request: GenerateRequest) -> AsyncGenerator[RequestOutput, None]: ...

    def after_aborts(self, action: Callable[[], object]) -> None:
        """Run the action once the engine has released every request whose generator was closed before."""
        ...

    async def reset_prefix_cache(self) -> None:
        """Forget every cached prefix that no running request uses."""
        ...

    async def stop(self, drain_seconds: float = 0.0) -> None: ...

    async def failed(self) -> BaseException:
        """Wait until the step loop has failed; returns its exception."""
        ...


class EngineClient(RunningEngine, Protocol):
    """An engine with its chat template and its plugins, in this process or another. Methods that return what an engine
    in another process has to be asked for are not for the event loop."""

    @property
    def template(self) -> ModelTemplate: ...

    def resolve_model(self, name: str) -> ModelLookup:
        """The model that a plugin serves under this name."""
        ...

    def list_models(self) -> list[ResolvedModel]:
        """Those that plugins add to the base model."""
        ...

    def check_answer(self, request: GenerateRequest, text: str, finish_reason: str) -> list[AnswerCheck]:
        """What plugins find in an ended answer whose form could not be enforced."""
        ...

    def read_state(self) -> EngineState: ...


class LoadedEngine(RunningEngine, Protocol):
    """An engine in this process."""

    @property
    def limits(self) -> EngineLimits: ...

    @property
    def plugins(self) -> ServerPlugins: ...

    @property
    def metrics(self) -> EngineMetrics: ...

    @property
    def cache_info(self) -> CacheInfo: ...

    def describe(self) -> Mapping[str, JsonValue]: ...

    def observer_metrics(self) -> Iterable[Metric]: ...

    def adapter_use(self) -> AdapterUse | None:
        """None where no plugin serves adapters."""
        ...

    def listen(self, ended: Callable[[Request], object]) -> None:
        """Have it called with every request that ends, in the step thread."""
        ...


class HostedEngine(LoadedEngine, Protocol):
    """An engine whose outputs are put where they are sent from, without a task for each request."""

    def open(self, request: GenerateRequest, mailbox: Mailbox) -> None:
        """Have the request's outputs put into the mailbox until `close`. Raises what `submit` raises."""
        ...

    def close(self, request_id: str, *, finished: bool) -> None:
        """`finished`: its last output was put; otherwise the request is aborted."""
        ...


class ServedEngine(LoadedEngine, Protocol):
    """The engine as the hook `add_routes` is given it."""

    @property
    def template(self) -> ModelTemplate: ...


class PluginRoutes(Protocol):
    """Requests whose path the server itself does not serve."""

    @property
    def paths(self) -> Collection[str]:
        """Patterns, such as /v1/greetings/{name}."""
        ...

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Raises HTTPNotFound where plugins do not serve the path either."""
        ...

    def document(self, *, root_path: str, needs_key: bool) -> JsonObject:
        """/openapi.json of the server's own routes and these. Not in the event loop."""
        ...

    async def close(self) -> None: ...
