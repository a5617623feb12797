"""The routes by which an operator changes the running engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_server.json_response import json_response
from specserve_server.state import ready_engine

if TYPE_CHECKING:
    from aiohttp import web


async def reset_prefix_cache(request: web.Request) -> web.Response:
    """A prefix that a running request uses stays known, also after that request."""
    await ready_engine(request).reset_prefix_cache()
    return json_response({"success": True})
