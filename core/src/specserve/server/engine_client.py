"""What the server needs of an engine, as protocols: the server and its tests know no more than this.

`specserve.engine.async_engine.AsyncEngine` fulfils them. No implementation here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence

    from specserve.metrics import EngineMetrics
    from specserve.plugins.host import Asked
    from specserve.protocols import Metric, TextStream
    from specserve.types import GenerateRequest, RequestOutput


class ServedTokenizer(Protocol):
    """`specserve.text.tokenizer.HfTokenizer` is one. `sampling_defaults` are generation_config.json's."""

    @property
    def sampling_defaults(self) -> Mapping[str, float]: ...

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...

    def encode_in_background(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str: ...

    def stream(self, prompt_ids: Sequence[int], *, skip_special_tokens: bool = True) -> TextStream: ...

    def token_text(self, token_id: int) -> str: ...

    def token_bytes(self, token_id: int) -> bytes: ...

    def render_chat(self, messages: Sequence[Mapping[str, Any]], **variables: Any) -> str: ...


class ServedPlugins(Protocol):
    """The plugin host, seen from a server."""

    def describe(self) -> list[dict[str, Any]]: ...

    def collect(self, hook: str, **arguments: Any) -> Iterable[tuple[str, Any]]: ...

    def ask(self, hook: str, read: Callable[[Any], Any], **arguments: Any) -> Asked: ...

    def contained(self, plugin: str, name: str, action: Callable[[], object]) -> Callable[[], None]: ...


class ServedEngine(Protocol):
    """An engine that is loaded. `submit`'s generator aborts the request when it is closed."""

    @property
    def tokenizer(self) -> ServedTokenizer: ...

    @property
    def plugins(self) -> ServedPlugins: ...

    @property
    def metrics(self) -> EngineMetrics: ...

    @property
    def model_name(self) -> str: ...

    @property
    def max_model_len(self) -> int: ...

    @property
    def created(self) -> int: ...

    @property
    def status(self) -> str:
        """loading, ready, draining or dead."""
        ...

    def check(self, request: GenerateRequest) -> None: ...

    def submit(self, request: GenerateRequest) -> AsyncGenerator[RequestOutput, None]: ...

    def after_aborts(self, action: Callable[[], None]) -> None:
        """Run it once the engine has forgotten every request whose generator was closed before."""
        ...

    def describe(self) -> dict[str, Any]: ...

    def observer_metrics(self) -> Iterable[Metric]: ...

    async def stop(self, drain_seconds: float = 0.0) -> None: ...

    async def failed(self) -> BaseException: ...
