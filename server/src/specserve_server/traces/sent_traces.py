"""Traces that are on: one provider of spans for each process."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar, cast

from specserve_server.traces.engine_spans import EngineSpans
from specserve_server.traces.provider import Provider
from specserve_server.traces.request_span import RequestSpan
from specserve_server.traces.traced_engine import TracedEngine
from specserve_server.traces.traces import NoTraces
from specserve_server.traces.wall_clock import WallClock

if TYPE_CHECKING:
    from aiohttp import web

    from specserve_server.engine_client import LoadedEngine, RunningEngine

    E = TypeVar("E", bound=RunningEngine)


OF_HEADERS = ("opentelemetry.trace.span", "opentelemetry.trace.propagation", "opentelemetry.baggage")
"""Loggers that warn of headers which clients send: they are ignored, and no client fills the log."""


class SentTraces(NoTraces):
    is_on = True

    def __init__(self, provider: Provider) -> None:
        self.provider, self.clock = provider, WallClock()
        for name in OF_HEADERS:
            logging.getLogger(name).setLevel(logging.ERROR)

    @classmethod
    def to(cls, endpoint: str | None) -> SentTraces:
        """None: where the environment says."""
        return cls(Provider.to(endpoint))

    def begin(self, request: web.Request, operation: str, route: str) -> RequestSpan:
        return RequestSpan.begin(self.provider.tracer, self.clock, request, operation, route)

    def traced(self, engine: E) -> E:
        return cast("E", TracedEngine(engine))

    def listen(self, engine: LoadedEngine) -> None:
        engine.listen(EngineSpans(self.provider.tracer, self.clock).ended)

    def close(self) -> None:
        self.provider.close()
