"""The routes of plugins in the engine's process: the server passes requests on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp
from aiohttp import hdrs, web

from specserve.errors import EngineDeadError
from specserve_server.engine_process.forwarding import Forwarding, passed_on
from specserve_server.engine_process.route_server import ROUTE_HEADER
from specserve_server.state.request_record import RECORD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_checks.json_types import JsonObject
    from specserve_server.engine_process.client import RemoteEngine


class RemoteRoutes:
    """Implements `specserve_server.engine_client.PluginRoutes`."""

    def __init__(self, engine: RemoteEngine, socket_path: str, patterns: Sequence[str]) -> None:
        self.engine, self.paths = engine, patterns
        self.forwarding = Forwarding(socket_path)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Behind what the server sent before: requests that ended have released their adapters."""
        body = await request.read()
        await self.engine.sync()
        try:
            async with self.forwarding.answer_to(request, body) as answer:
                request[RECORD].plugin_route = route_of(request, answer)
                return await passed_on(request, answer, ROUTE_HEADER.lower())
        except aiohttp.ClientError as error:
            raise EngineDeadError(f"the engine's process did not answer this route: {error}") from error

    def document(self, *, root_path: str, needs_key: bool) -> JsonObject:
        return self.engine.document(root_path=root_path, needs_key=needs_key)

    async def close(self) -> None:
        await self.forwarding.close()


def route_of(request: web.BaseRequest, answer: aiohttp.ClientResponse) -> str | None:
    """The pattern of the plugin's route. Raises HTTPNotFound and HTTPMethodNotAllowed where no plugin serves it."""
    route = answer.headers.get(ROUTE_HEADER)
    if route is None and answer.status == web.HTTPNotFound.status_code:
        raise web.HTTPNotFound
    if route is None and answer.status == web.HTTPMethodNotAllowed.status_code:
        raise web.HTTPMethodNotAllowed(request.method, answer.headers.get(hdrs.ALLOW, "").split(","))
    return route
