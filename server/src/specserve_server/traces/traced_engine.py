"""An engine that is told under which span each of its requests is: that of the HTTP request that submits it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve_server.state.request_record import CURRENT

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from specserve.types import GenerateRequest, RequestOutput
    from specserve_server.engine_client import RunningEngine


class TracedEngine:
    """All but `submit` is the engine's own."""

    def __init__(self, engine: RunningEngine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)

    def submit(self, request: GenerateRequest) -> AsyncGenerator[RequestOutput, None]:
        record = CURRENT.get()
        if record is not None and record.trace_headers:
            request = msgspec.structs.replace(request, trace_headers=record.trace_headers)
        return self._engine.submit(request)
