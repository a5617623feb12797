"""One log line for each request that has ended, also where its client has left."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from aiohttp import web

from specserve.server.access_log import access_fields, access_line, logger
from specserve.server.request_record import RECORD
from specserve.server.state import state_of

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

CLIENT_LEFT = 499
"""As nginx logs it; never sent."""


@web.middleware
async def access_log_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    status = 500
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
        seconds = time.perf_counter() - request[RECORD].started
        logger.info(access_line(access_fields(request, status, seconds), state_of(request).config.access_log))
