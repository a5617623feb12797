"""The aiohttp application: routes, middlewares, and the engine's lifetime inside it.

Owns which handler serves which path. The engine loads while the server already answers /health with 503;
plugins' routes live in an application of their own, made when the engine is there.
"""

from __future__ import annotations

import asyncio
import hmac
from contextlib import suppress
from typing import TYPE_CHECKING

from aiohttp import web

from specserve.server.errors import UnauthorizedError, UnavailableError, errors_middleware
from specserve.server.info import detokenize, health, models, one_model, openapi, plugins, tokenize, version
from specserve.server.metrics import metrics
from specserve.server.serving_chat import chat_completions
from specserve.server.serving_completion import completions
from specserve.server.state import STATE, ServerState, state_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from aiohttp.typedefs import Handler

    from specserve.config import ServerConfig
    from specserve.server.engine_client import EngineClient

    EngineStarter = Callable[[], Awaitable[EngineClient]]

OPEN_PATHS = ("/health",)
"""Served without an API key."""


def make_app(engine: EngineClient | EngineStarter, config: ServerConfig) -> web.Application:
    """`engine` is loaded, or a coroutine function that loads one. The application stops it at its end."""
    app = web.Application(
        middlewares=[errors_middleware, key_middleware, guest_middleware], client_max_size=config.max_body_bytes
    )
    app[STATE] = ServerState(config)
    app.add_routes(
        [
            web.get("/health", health),
            web.get("/version", version),
            web.get("/metrics", metrics),
            web.get("/openapi.json", openapi),
            web.get("/v1/models", models),
            web.get("/v1/models/{name:.+}", one_model),
            web.get("/v1/plugins", plugins),
            web.post("/v1/completions", completions),
            web.post("/v1/chat/completions", chat_completions),
            web.post("/tokenize", tokenize),
            web.post("/detokenize", detokenize),
        ]
    )

    async def lifetime(app: web.Application) -> AsyncIterator[None]:
        state = app[STATE]
        guests: list[web.AppRunner] = []
        if callable(engine):
            state.loading = asyncio.create_task(load(state, engine, guests))
        else:
            await attach(state, engine, guests)
        yield
        if state.loading is not None:
            state.loading.cancel()
            # Whoever awaited it has its error already; /health has said 503.
            with suppress(asyncio.CancelledError, Exception):
                await state.loading
        for guest in guests:
            await guest.cleanup()
        if state.engine is not None:
            await state.engine.stop()

    app.cleanup_ctx.append(lifetime)
    return app


async def load(state: ServerState, start: EngineStarter, guests: list[web.AppRunner]) -> None:
    await attach(state, await start(), guests)


async def attach(state: ServerState, engine: EngineClient, guests: list[web.AppRunner]) -> None:
    """Routes of plugins first, so that a server that says it is ready has them."""
    guest = web.Application()
    for _ in engine.plugins.collect("add_routes", app=guest, engine=engine):
        pass
    runner = web.AppRunner(guest)
    await runner.setup()
    guests.append(runner)
    assert runner.server is not None
    state.guest = runner.server.request_handler
    state.engine = engine


@web.middleware
async def key_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """`Authorization: Bearer KEY`, compared in constant time."""
    key = state_of(request).config.api_key
    if key is not None and request.path not in OPEN_PATHS:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        matches = hmac.compare_digest(given.strip().encode(errors="surrogateescape"), key.encode())
        if scheme.lower() != "bearer" or not matches:
            raise UnauthorizedError("the API key is missing or wrong; send Authorization: Bearer KEY.")
    return await handler(request)


@web.middleware
async def guest_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A path that the core does not have may be a plugin's: its application routes the request anew, on a
    clone, since aiohttp keeps the first route that a request object had."""
    try:
        return await handler(request)
    except web.HTTPNotFound:
        state = state_of(request)
        if state.engine is None:
            raise UnavailableError(f"the server is {state.status}.") from None
        if state.guest is None:
            raise
    return await state.guest(request.clone())
