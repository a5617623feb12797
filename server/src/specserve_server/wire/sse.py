"""Server-sent events, one write per event: some clients decode every line.

Completions and chat: `data: JSON`, blank line; `data: [DONE]` at the end. Other APIs name their events and end without.
Comments come only where `sse_keep_alive` asks for them.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from specserve_server.state.server_state import state_of

if TYPE_CHECKING:
    from types import TracebackType


HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
KEEP_ALIVE = b": keep-alive\n\n"
"""A comment, which clients ignore."""


class EventStream:
    """`async with EventStream(request) as events`. The first event starts the response, so that an error before it has
    a status of its own; a clean exit ends it with [DONE]. Where the configuration asks for comments, the first of them
    starts the response, too."""

    def __init__(self, request: web.Request) -> None:
        self.request = request
        self._writing = asyncio.Lock()
        self._idle_since = asyncio.get_running_loop().time()
        self._keep_alive: asyncio.Task[None] | None = None
        self.response = web.StreamResponse(headers=HEADERS)

    async def __aenter__(self) -> EventStream:
        seconds = state_of(self.request).config.sse_keep_alive
        if seconds is not None:
            self._keep_alive = asyncio.create_task(self._send_comments(seconds))
        return self

    @property
    def started(self) -> bool:
        return self.response.prepared

    async def send(self, body: object, name: str | None = None) -> None:
        named = b"" if name is None else f"event: {name}\n".encode()
        await self._write(named + b"data: " + msgspec.json.encode(body) + b"\n\n")

    async def finish(self) -> None:
        await self._write(b"data: [DONE]\n\n")

    async def _write(self, data: bytes) -> None:
        async with self._writing:
            if not self.started:
                await self.response.prepare(self.request)
            await self.response.write(data)
            self._idle_since = asyncio.get_running_loop().time()

    async def _send_comments(self, seconds: float) -> None:
        """One whenever nothing was sent for so long. A client that left is noticed by others."""
        clock = asyncio.get_running_loop().time
        with suppress(ConnectionResetError):
            while True:
                await asyncio.sleep(max(self._idle_since + seconds - clock(), 0))
                if self._writing.locked():  # the client reads slowly: what it has yet to read keeps it busy
                    await asyncio.sleep(seconds)
                elif clock() >= self._idle_since + seconds:
                    await self._write(KEEP_ALIVE)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._keep_alive is not None:
            self._keep_alive.cancel()
            await asyncio.gather(self._keep_alive, return_exceptions=True)
        if error is None:
            await self.finish()
            await self.response.write_eof()


class NamedEventStream(EventStream):
    """The last event is one like the others."""

    async def finish(self) -> None:
        pass
