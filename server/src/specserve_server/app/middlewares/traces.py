"""A span of each request that generates, where traces are on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import hdrs, web

from specserve_server.app.root_path import without_prefix
from specserve_server.state.request_record import RECORD
from specserve_server.state.response_counts import pattern_of
from specserve_server.state.server_state import state_of
from specserve_server.traces.traces import TRACES

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

OPERATIONS = {
    "/v1/completions": "text_completion",
    "/v1/chat/completions": "chat",
    "/v1/responses": "chat",
    "/v1/messages": "chat",
}
"""Of POST requests, in OpenTelemetry's words."""


@web.middleware
async def traces_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    route = without_prefix(pattern_of(request) or "", state_of(request).config.root_path)
    name = OPERATIONS.get(route) if request.method == hdrs.METH_POST else None
    if name is None:
        return await handler(request)
    operation, record, status = request.app[TRACES].begin(request, name, route), request[RECORD], None
    record.trace_headers = operation.headers
    try:
        response = await handler(request)
        status = response.status
        return response
    except (asyncio.CancelledError, ConnectionResetError):
        raise  # the client has left
    except web.HTTPException as redirect:
        status = redirect.status
        raise
    finally:
        operation.end(record, status)
