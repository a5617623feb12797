"""A server that answers every request with given bytes, piece by piece, and then ends well or breaks off."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.test_utils import TestServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

CONNECTIONS = web.AppKey("connections", set)
"""Those on which requests came."""
PAUSE = 0.05
"""Seconds before each piece."""
DONE = b"data: [DONE]\n\n"


def text_event(text: str, end: str = "null") -> bytes:
    return b'data: {"choices":[{"index":0,"text":"%s","finish_reason":%s}]}\n\n' % (text.encode(), end.encode())


def usage_event(prompt: int, completion: int, metrics: str = "null") -> bytes:
    usage = b'{"prompt_tokens":%d,"completion_tokens":%d}' % (prompt, completion)
    return b'data: {"choices":[],"usage":%s,"metrics":%s}\n\n' % (usage, metrics.encode())


@asynccontextmanager
async def answering(
    pieces: Sequence[bytes], *, status: int = 200, breaks_off: bool = False
) -> AsyncIterator[TestServer]:
    async def answer(request: web.Request) -> web.StreamResponse:
        connections.add(request.transport)
        await request.read()
        response = web.StreamResponse(status=status)
        await response.prepare(request)
        for piece in pieces:
            await asyncio.sleep(PAUSE)
            await response.write(piece)
        if breaks_off:
            assert request.transport is not None
            request.transport.abort()
        return response

    connections: set[object] = set()
    app = web.Application()
    app[CONNECTIONS] = connections
    app.router.add_post("/v1/completions", answer)
    async with TestServer(app) as server:
        yield server
