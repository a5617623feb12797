"""What the server and the engine's process have of traces, whether they are on or not. No OpenTelemetry here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from aiohttp import web

if TYPE_CHECKING:
    from specserve_server.engine_client import LoadedEngine, RunningEngine
    from specserve_server.state.request_record import RequestRecord

    E = TypeVar("E", bound=RunningEngine)


class Operation(Protocol):
    """A request that is traced, from its beginning to `end`."""

    @property
    def headers(self) -> dict[str, str]:
        """W3C Trace Context, for the spans below it; empty where the request is not sampled."""
        ...

    def end(self, record: RequestRecord, status: int | None) -> None:
        """`status`: None where the client left before it was sent. A request that is passed on has no end here."""
        ...


class NoTraces:
    """Nobody traces."""

    is_on = False

    def begin(self, request: web.Request, operation: str, route: str) -> Operation:
        """The span of a request. `operation`: OpenTelemetry's word for it; `route`: the pattern of its path."""
        raise AssertionError("asked only where traces are on")

    def traced(self, engine: E) -> E:
        """An engine whose requests are traced below the HTTP request that submits them."""
        return engine

    def listen(self, engine: LoadedEngine) -> None:
        """Make spans of what the engine does for requests, in the engine's own process."""

    def close(self) -> None:
        """Send what waits, for `specserve_server.traces.provider.CLOSE_SECONDS` at most. Not in the event loop."""


NO_TRACES = NoTraces()
TRACES = web.AppKey("specserve_traces", NoTraces)
