"""Limits of each client's requests: of a key's name, or without keys of an address."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import hdrs, web

from specserve_server.app.middlewares.authentication import is_public
from specserve_server.state.request_record import RECORD
from specserve_server.state.server_state import state_of

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler


@web.middleware
async def rate_limits_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """POST requests count, since these make the server work; lists, metrics and health do not."""
    if request.method != hdrs.METH_POST or is_public(request):
        return await handler(request)
    client = request[RECORD].key_name or request.remote or "unix"
    with state_of(request).limits.admitted(client):
        return await handler(request)
