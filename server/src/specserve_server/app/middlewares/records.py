"""The record of a request, from its beginning to its end: the outermost middleware."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from specserve_server.state.request_record import CURRENT, RECORD, REQUEST_ID, RequestRecord, request_id

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler


@web.middleware
async def records_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    record = request[RECORD] = RequestRecord(request_id(request.headers.get(REQUEST_ID)))
    record.headers[REQUEST_ID] = record.id
    token = CURRENT.set(record)
    try:
        return await handler(request)
    finally:
        CURRENT.reset(token)  # the next request of this connection runs in the same context
