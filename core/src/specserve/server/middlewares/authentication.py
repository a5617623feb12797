"""Who may use the server: the API key of a request."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from aiohttp import web

from specserve.server.errors import UnauthorizedError
from specserve.server.state import state_of

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

PUBLIC_PATHS = ("/health",)
"""Served without an API key."""


@web.middleware
async def auth_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """`Authorization: Bearer KEY`, compared in constant time."""
    key = state_of(request).config.api_key
    if key is not None and request.path not in PUBLIC_PATHS:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        matches = hmac.compare_digest(given.strip().encode(errors="surrogateescape"), key.encode())
        if scheme.lower() != "bearer" or not matches:
            raise UnauthorizedError("the API key is missing or wrong; send Authorization: Bearer KEY.")
    return await handler(request)
