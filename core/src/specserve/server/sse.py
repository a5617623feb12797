"""Server-sent events as OpenAI's clients read them: `data: JSON`, blank line; `data: [DONE]` at the end.

No comments and no event names: some clients decode every line. One write per event.
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
    a status of its own; [DONE] is sent on a clean exit only."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self.response = web.StreamResponse(headers=HEADERS)

    async def __aenter__(self) -> EventStream:
        return self

    @property
    def started(self) -> bool:
        return self.response.prepared

    async def send(self, body: JsonObject) -> None:
        await self._write(msgspec.json.encode(body))

    async def _write(self, data: bytes) -> None:
        if not self.started:
            await self.response.prepare(self._request)
        await self.response.write(b"data: " + data + b"\n\n")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self._write(b"[DONE]")
            await self.response.write_eof()
