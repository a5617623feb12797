"""What the server needs of an engine, as protocols. The server and its tests use nothing else of it.

`specserve.engine.async_engine.AsyncEngine` implements `EngineClient`, `specserve_server.generation.templated_engine`
makes a `ServedEngine` of it. No implementation here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import TypeVar

    from specserve.metrics import AdapterUse, CacheInfo, EngineMetrics
    from specserve.protocols import Metric, TextStream
    from specserve.types import GenerateRequest, RequestOutput
    from specserve_checks.json_types import JsonObject, JsonValue
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


class EngineClient(Protocol):
    """A loaded engine. Closing the generator of `submit` aborts the request."""

    @property
    def tokenizer(self) -> ServerTokenizer: ...

    @property
    def plugins(self) -> ServerPlugins: ...

    @property
    def metrics(self) -> EngineMetrics: ...

    @property
    def model_name(self) -> str: ...

    @property
    def max_model_len(self) -> int: ...

    @property
    def output_kinds(self) -> frozenset[str]:
        """The kinds of structured output that are enforced."""
        ...

    @property
    def cache_info(self) -> CacheInfo: ...

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
        """Raise a `RequestError` unless the request can be served."""
        ...

    def submit(self, request: GenerateRequest) -> AsyncGenerator[RequestOutput, None]: ...

    def after_aborts(self, action: Callable[[], object]) -> None:
        """Run the action once the engine has released every request whose generator was closed before."""
        ...

    def describe(self) -> Mapping[str, JsonValue]: ...

    def observer_metrics(self) -> Iterable[Metric]: ...

    def adapter_use(self) -> AdapterUse | None:
        """None where no plugin serves adapters."""
        ...

    async def reset_prefix_cache(self) -> None:
        """Forget every cached prefix that no running request uses."""
        ...

    async def stop(self, drain_seconds: float = 0.0) -> None: ...

    async def failed(self) -> BaseException:
        """Wait until the step loop has failed; returns its exception."""
        ...


class ServedEngine(EngineClient, Protocol):
    """The engine as the routes see it: with its model's chat template."""

    @property
    def template(self) -> ModelTemplate: ...
