"""The routes of plugins, which lie in an application of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from specserve_server.app.root_path import without_prefix
from specserve_server.state.server_state import state_of

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler


@web.middleware
async def plugin_routes_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A path that the core does not serve is routed again in the plugins' application; on a clone, since aiohttp keeps
    the first route of a request object."""
    try:
        return await handler(request)
    except web.HTTPNotFound:
        state = state_of(request)
        if state.plugin_routes is None:
            raise
    path = without_prefix(request.rel_url.raw_path, state.config.root_path)
    url = request.rel_url.with_path(path, encoded=True, keep_query=True)
    return await state.plugin_routes.handle(request.clone(rel_url=url))
