"""The routes by which an operator changes the running engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_server.operations.answers import CacheReset
from specserve_server.state.server_state import ready_engine
from specserve_server.wire.json_response import json_response

if TYPE_CHECKING:
    from aiohttp import web


async def reset_prefix_cache(request: web.Request) -> web.Response:
    """A prefix that a running request uses stays known, also after that request."""
    await ready_engine(request).reset_prefix_cache()
    return json_response(CacheReset(success=True))
