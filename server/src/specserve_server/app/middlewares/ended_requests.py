"""What is known of each request that has ended, also where its client has left: counted, and a line in the log."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from aiohttp import web

from specserve_server.app.access_log import access_fields, access_line, logger
from specserve_server.app.root_path import without_prefix
from specserve_server.state.request_record import RECORD
from specserve_server.state.response_counts import pattern_of
from specserve_server.state.server_state import state_of

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

    from specserve_server.state.server_state import ServerState

CLIENT_LEFT = 499
"""As nginx logs it; never sent."""


@web.middleware
async def ended_requests_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    status, state = 500, state_of(request)
    state.num_answering += 1
    try:
        response = await handler(request)
        status = response.status
        return response
    except web.HTTPException as redirect:
        status = redirect.status
        raise
    except (asyncio.CancelledError, ConnectionResetError):
        status = CLIENT_LEFT
        raise
    finally:
        state.num_answering -= 1
        if not request[RECORD].is_passed_on:
            tell(request, state, status)


def tell(request: web.Request, state: ServerState, status: int) -> None:
    state.responses.add(request.method, route_of(request), status)
    if state.config.access_log != "none":
        fields = access_fields(request, status, time.perf_counter() - request[RECORD].started)
        logger.info(access_line(fields, state.config.access_log, state.config.log_format))


def route_of(request: web.Request) -> str | None:
    """The pattern of its path, such as /v1/models/{name}; None where nobody serves the path."""
    route = request[RECORD].plugin_route or pattern_of(request)
    return None if route is None else without_prefix(route, state_of(request).config.root_path)
