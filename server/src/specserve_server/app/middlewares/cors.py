"""CORS: pages of the configured origins may use the server from a browser.

The API key is a header that a page sets itself, so credentials (cookies) are never allowed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aiohttp import hdrs, web

from specserve_server.state.request_record import RECORD, REQUEST_ID
from specserve_server.state.server_state import state_of

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

METHODS = "GET, POST, PUT, PATCH, DELETE"
"""Routes of plugins may have any."""
EXPOSED = f"{REQUEST_ID}, Retry-After, x-should-retry"
HEADER_NAMES = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~, -]{0,4096}")
MAX_AGE = "600"
"""Seconds for which a browser need not ask again."""


@web.middleware
async def cors_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A browser asks by OPTIONS before it sends what a page wants to send; it sends no key with that."""
    allowed = state_of(request).config.cors_origins
    origin = request.headers.get(hdrs.ORIGIN)
    headers = request[RECORD].headers
    if "*" not in allowed:
        headers[hdrs.VARY] = hdrs.ORIGIN
    if origin is None or not {"*", origin} & set(allowed):
        return await handler(request)
    headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = "*" if "*" in allowed else origin
    if request.method == hdrs.METH_OPTIONS and hdrs.ACCESS_CONTROL_REQUEST_METHOD in request.headers:
        return web.Response(status=204, headers=preflight_headers(request))
    headers[hdrs.ACCESS_CONTROL_EXPOSE_HEADERS] = EXPOSED
    return await handler(request)


def preflight_headers(request: web.Request) -> dict[str, str]:
    wanted = request.headers.get(hdrs.ACCESS_CONTROL_REQUEST_HEADERS, "")
    return {
        hdrs.ACCESS_CONTROL_ALLOW_METHODS: METHODS,
        hdrs.ACCESS_CONTROL_ALLOW_HEADERS: wanted if HEADER_NAMES.fullmatch(wanted) else "",
        hdrs.ACCESS_CONTROL_MAX_AGE: MAX_AGE,
    }
