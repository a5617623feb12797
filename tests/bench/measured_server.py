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
BODIES = web.AppKey("bodies", list)
"""Of all requests."""
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
    pieces: Sequence[bytes],
    *,
    status: int = 200,
    breaks_off: bool = False,
    counters: Sequence[str] = (),
    model: str | None = None,
) -> AsyncIterator[TestServer]:
    """`counters`: what GET /metrics says, one after the other. `model`: the one that GET /v1/models has. Without them
    there are no such routes."""

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": model}]})

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=waiting.pop(0))

    async def answer(request: web.Request) -> web.StreamResponse:
        connections.add(request.transport)
        bodies.append(await request.json())
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
    bodies: list[dict[str, object]] = []
    waiting = [*counters]
    app = web.Application()
    app[CONNECTIONS], app[BODIES] = connections, bodies
    if model:
        app.router.add_get("/v1/models", models)
    if counters:
        app.router.add_get("/metrics", metrics)
    app.router.add_post("/v1/completions", answer)
    async with TestServer(app) as server:
        yield server
