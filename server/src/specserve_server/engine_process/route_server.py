"""The routes of plugins over HTTP, on a unix socket that only the server's user can reach. In the engine's process."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web

from specserve_server.app.http_runner import HttpRunner
from specserve_server.app.middlewares.errors import errors_middleware
from specserve_server.app.middlewares.records import records_middleware
from specserve_server.state.api_keys import ApiKeys
from specserve_server.state.rate_limits import RateLimits
from specserve_server.state.request_record import RECORD, add_headers
from specserve_server.state.server_state import STATE, ServerState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from specserve_server.config import ServerConfig
    from specserve_server.engine_client import PluginRoutes

ROUTE_HEADER = "X-Specserve-Route"
"""The pattern of the route that answered; missing where no plugin serves the path."""


@asynccontextmanager
async def served_routes(routes: PluginRoutes, config: ServerConfig, path: str) -> AsyncIterator[None]:
    """On a socket at `path`. Keys and limits are the server's business; errors are answered here."""
    runner = HttpRunner(make_route_app(routes, config))
    await runner.setup()
    try:
        await web.UnixSite(runner, path).start()
        yield
    finally:
        await runner.cleanup()


def make_route_app(routes: PluginRoutes, config: ServerConfig) -> web.Application:
    async def handle(request: web.Request) -> web.StreamResponse:
        return await routes.handle(request.clone())

    app = web.Application(middlewares=[records_middleware, errors_middleware], client_max_size=config.max_body_bytes)
    app[STATE] = ServerState(config, ApiKeys(config), RateLimits(None, None))
    app.on_response_prepare.append(add_headers)
    app.on_response_prepare.append(tell_route)
    app.router.add_route("*", "/{path:.*}", handle)
    return app


async def tell_route(request: web.Request, response: web.StreamResponse) -> None:
    route = request[RECORD].plugin_route
    if route is not None:
        response.headers[ROUTE_HEADER] = route
