"""While the engine loads, nothing is served but health and the page: not even what needs no engine, so that no thread
but the loading one meets types whose tables are not built yet (`specserve_checks.struct_tables`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from specserve_server.app.root_path import without_prefix
from specserve_server.errors import UnavailableError
from specserve_server.state.server_state import state_of

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

HEALTH_PATHS = ("/health", "/ping")


@web.middleware
async def loading_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Unknown paths are refused likewise: nobody knows yet which ones plugins will serve."""
    state = state_of(request)
    path = without_prefix(request.path, state.config.root_path)
    if state.engine is None and path not in HEALTH_PATHS and path not in state.page.paths:
        raise UnavailableError(f"the server is {state.status}. GET /health says when it is ready.")
    return await handler(request)
