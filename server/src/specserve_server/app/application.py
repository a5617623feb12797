"""The aiohttp application: routes, middlewares, and the engine's lifetime within it.

While the engine loads, the server answers 503, and /health with how far it is. The routes of plugins live in an
application of their own, which is made when the engine is loaded.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from aiohttp import web

from specserve_checks.struct_tables import build_struct_tables
from specserve_server.app.middlewares.authentication import auth_middleware
from specserve_server.app.middlewares.cors import cors_middleware
from specserve_server.app.middlewares.ended_requests import ended_requests_middleware
from specserve_server.app.middlewares.errors import errors_middleware
from specserve_server.app.middlewares.loading import loading_middleware
from specserve_server.app.middlewares.plugin_routes import plugin_routes_middleware
from specserve_server.app.middlewares.rate_limits import rate_limits_middleware
from specserve_server.app.middlewares.records import records_middleware
from specserve_server.app.middlewares.traces import traces_middleware
from specserve_server.app.root_path import with_prefix
from specserve_server.chat.serving import chat_completions
from specserve_server.completions.serving import completions
from specserve_server.engines.attached import AttachedEngine
from specserve_server.engines.in_process import attach_in_process
from specserve_server.load_progress import LoadProgress
from specserve_server.messages.serving import count_tokens, create_message
from specserve_server.openapi.serving import docs, openapi
from specserve_server.operations.engine_operations import reset_prefix_cache
from specserve_server.operations.info import get_model, health, load, models, plugins, version
from specserve_server.operations.loads import loads, server_info
from specserve_server.operations.metrics import metrics
from specserve_server.operations.plugin_pairs import plugin_pairs
from specserve_server.operations.tokenization import detokenize, tokenize, tokenizer_info
from specserve_server.page import NO_PAGE, installed_page
from specserve_server.responses.serving import create_response, delete_response, get_response
from specserve_server.responses.store import RESPONSES, ResponseStore
from specserve_server.state.api_keys import ApiKeys
from specserve_server.state.fingerprint import system_fingerprint
from specserve_server.state.rate_limits import RateLimits
from specserve_server.state.request_record import add_headers
from specserve_server.state.server_state import STATE, ServerState
from specserve_server.tools.borrowing import borrow_form
from specserve_server.traces.open_traces import open_traces
from specserve_server.traces.traces import TRACES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from aiohttp.typedefs import Middleware

    from specserve_server.config import ServerConfig
    from specserve_server.engine_client import LoadedEngine
    from specserve_server.traces.traces import NoTraces

    EngineStarter = Callable[[], Awaitable[LoadedEngine | AttachedEngine]]


ROUTES = (
    web.get("/health", health),
    web.get("/ping", health),
    web.post("/ping", health),
    web.get("/version", version),
    web.get("/metrics", metrics),
    web.get("/load", load),
    web.get("/v1/loads", loads),
    web.get("/get_server_info", server_info),
    web.get("/openapi.json", openapi),
    web.get("/docs", docs),
    web.get("/v1/models", models),
    web.get("/v1/models/{name:.+}", get_model),
    web.get("/v1/plugins", plugins),
    web.get("/v1/plugins/pairs", plugin_pairs),
    web.post("/v1/completions", completions),
    web.post("/v1/chat/completions", chat_completions),
    web.post("/v1/responses", create_response),
    web.get("/v1/responses/{id}", get_response),
    web.delete("/v1/responses/{id}", delete_response),
    web.post("/v1/messages", create_message),
    web.post("/v1/messages/count_tokens", count_tokens),
    web.post("/tokenize", tokenize),
    web.post("/detokenize", detokenize),
    web.get("/tokenizer_info", tokenizer_info),
    web.post("/reset_prefix_cache", reset_prefix_cache),
)


def make_app(
    engine: LoadedEngine | AttachedEngine | EngineStarter,
    config: ServerConfig,
    progress: LoadProgress | None = None,
    routes: Sequence[web.RouteDef] = ROUTES,
    traces: NoTraces | None = None,
) -> web.Application:
    """`engine` is loaded, or a coroutine function that loads one, and tells `progress` how far it is. The application
    stops it when it ends. Raises ConfigError where a file that the configuration names is wrong, and for a page
    that cannot be used. `traces`: None: as the configuration has them."""
    build_struct_tables()  # before it listens
    traces = open_traces(config) if traces is None else traces
    app = web.Application(
        middlewares=make_middlewares(config, traces),
        client_max_size=config.max_body_bytes,
    )
    app[TRACES] = traces
    app.on_response_prepare.append(add_headers)
    app[STATE] = ServerState(
        config,
        ApiKeys(config),
        RateLimits(config.max_requests_per_minute, config.max_concurrent_requests_per_key),
        page=installed_page() if config.page else NO_PAGE,
        progress=progress or LoadProgress(),
    )
    app[RESPONSES] = ResponseStore()
    app.add_routes(with_prefix([*routes, *app[STATE].page.routes], config.root_path))

    async def run_engine(app: web.Application) -> AsyncIterator[None]:
        state = app[STATE]
        if callable(engine):
            state.loading = asyncio.create_task(load_engine(state, engine, traces))
        else:
            await attach(state, await attached(engine, config, traces), traces)
        yield
        await stop_engine(state)
        await asyncio.to_thread(traces.close)

    app.cleanup_ctx.append(run_engine)
    return app


def make_middlewares(config: ServerConfig, traces: NoTraces) -> list[Middleware]:
    """The outermost first."""
    traced = [traces_middleware] if traces.is_on else []
    cors = [cors_middleware] if config.cors_origins else []
    limited = config.max_requests_per_minute or config.max_concurrent_requests_per_key
    limits = [rate_limits_middleware] if limited else []
    inner = [auth_middleware, loading_middleware, *limits, plugin_routes_middleware]
    return [records_middleware, *traced, ended_requests_middleware, errors_middleware, *cors, *inner]


async def load_engine(state: ServerState, start: EngineStarter, traces: NoTraces) -> None:
    await attach(state, await attached(await start(), state.config, traces), traces)


async def attached(engine: LoadedEngine | AttachedEngine, config: ServerConfig, traces: NoTraces) -> AttachedEngine:
    if isinstance(engine, AttachedEngine):
        return engine
    traces.listen(engine)
    return await attach_in_process(engine, config)


async def attach(state: ServerState, engine: AttachedEngine, traces: NoTraces) -> None:
    """The routes of plugins first, so that a server that reports ready has them."""
    client, state.plugin_routes, state.processes = engine
    state.fingerprint = system_fingerprint(await asyncio.to_thread(client.read_state))
    borrow_form(client.template, state.config.tool_form)
    state.engine = traces.traced(client)


async def stop_engine(state: ServerState) -> None:
    if state.loading is not None:
        state.loading.cancel()
        # The coroutine that awaited the task has its error already.
        with suppress(asyncio.CancelledError, Exception):
            await state.loading
    if state.plugin_routes is not None:
        await state.plugin_routes.close()
    if state.engine is not None:
        await state.engine.stop()
