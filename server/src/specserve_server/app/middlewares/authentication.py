"""Who may use the server: the API key of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from specserve_server.app.root_path import without_prefix
from specserve_server.errors import UnauthorizedError
from specserve_server.state.request_record import RECORD
from specserve_server.state.server_state import state_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiohttp.typedefs import Handler

PUBLIC_PATHS = ("/health", "/ping", "/docs")
"""Served without an API key. A browser sends none for /docs, which holds nothing of this server."""


@web.middleware
async def auth_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """`Authorization: Bearer KEY`, or `x-api-key: KEY`, which clients of Anthropic's API send."""
    keys = state_of(request).keys
    if keys.required and not is_public(request):
        names = [name for given in given_keys(request) if (name := keys.name_of(given)) is not None]
        if not names:
            raise UnauthorizedError(f"{what_is_wrong(request)}; send Authorization: Bearer KEY, or x-api-key: KEY.")
        request[RECORD].key_name = names[0]
    return await handler(request)


def is_public(request: web.Request) -> bool:
    state = state_of(request)
    path = without_prefix(request.path, state.config.root_path)
    return path in PUBLIC_PATHS or path in state.page.paths


def what_is_wrong(request: web.Request) -> str:
    """Never shows what was sent."""
    if any(given_keys(request)):
        return "the API key is wrong: this server has no such key"
    if "Authorization" in request.headers and "x-api-key" not in request.headers:
        return "the API key is missing: the header Authorization is there, but not as Bearer KEY"
    return "the API key is missing"


def given_keys(request: web.Request) -> Iterator[str]:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        yield given.strip()
    if "x-api-key" in request.headers:
        yield request.headers["x-api-key"].strip()
