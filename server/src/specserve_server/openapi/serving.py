"""GET /openapi.json and /docs."""

from __future__ import annotations

import asyncio
from functools import partial
from importlib.resources import files

from aiohttp import web

from specserve_server.openapi.core_operations import CORE_OPERATIONS
from specserve_server.openapi.document import openapi_document
from specserve_server.state.server_state import state_of
from specserve_server.wire.json_response import json_response

PAGE = files("specserve_server.openapi").joinpath("docs.html")
POLICY = "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
"""The page reads this server only."""


async def openapi(request: web.Request) -> web.Response:
    """Where paths of plugins are the same as the server's own, these are served."""
    state = state_of(request)
    operations = {**state.plugin_operations, **CORE_OPERATIONS}
    root_path, needs_key = state.config.root_path, state.keys.required
    make = partial(openapi_document, operations, root_path=root_path, needs_key=needs_key)
    return json_response(await asyncio.to_thread(make))


async def docs(request: web.Request) -> web.Response:
    """The page asks for the document, and for an API key where the server wants one."""
    return web.Response(
        text=PAGE.read_text(encoding="utf-8"),
        content_type="text/html",
        headers={"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"},
    )
