"""Server-sent events, one write per event, no comments: some clients decode every line.

Completions and chat: `data: JSON`, blank line; `data: [DONE]` at the end. Other APIs name their events and end without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

if TYPE_CHECKING:
    from types import TracebackType

    from specserve.json_types import JsonObject

HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class EventStream:
    """`async with EventStream(request) as events`. The first event starts the response, so that an error before it has
    a status of its own; a clean exit ends it with [DONE]."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self.response = web.StreamResponse(headers=HEADERS)

    async def __aenter__(self) -> EventStream:
        return self

    @property
    def started(self) -> bool:
        return self.response.prepared

    async def send(self, body: JsonObject) -> None:
        await self._write(b"data: " + msgspec.json.encode(body) + b"\n\n")

    async def finish(self) -> None:
        await self._write(b"data: [DONE]\n\n")

    async def _write(self, data: bytes) -> None:
        if not self.started:
            await self.response.prepare(self._request)
        await self.response.write(data)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.finish()
            await self.response.write_eof()


class NamedEventStream(EventStream):
    """Each event has its `type` as its name, and the last one is an event like the others."""

    async def send(self, body: JsonObject) -> None:
        await self._write(f"event: {body['type']}\ndata: ".encode() + msgspec.json.encode(body) + b"\n\n")

    async def finish(self) -> None:
        pass
