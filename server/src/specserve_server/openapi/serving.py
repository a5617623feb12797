"""GET /openapi.json and /docs."""

from __future__ import annotations

import asyncio
from functools import partial
from importlib.resources import files

from aiohttp import web

from specserve_server.state.server_state import state_of
from specserve_server.wire.json_response import json_response

PAGE = files("specserve_server.openapi").joinpath("docs.html")
POLICY = "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
"""The page reads this server only."""


async def openapi(request: web.Request) -> web.Response:
    state = state_of(request)
    assert state.plugin_routes is not None, "this route is served once the engine is loaded"
    make = partial(state.plugin_routes.document, root_path=state.config.root_path, needs_key=state.keys.required)
    return json_response(await asyncio.to_thread(make))


async def docs(request: web.Request) -> web.Response:
    """The page asks for the document, and for an API key where the server wants one."""
    return web.Response(
        text=PAGE.read_text(encoding="utf-8"),
        content_type="text/html",
        headers={"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"},
    )
