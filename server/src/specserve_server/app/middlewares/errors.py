"""Errors as JSON bodies: the middleware around all others that may raise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from specserve_server.app.http_messages import http_refusal
from specserve_server.app.root_path import without_prefix
from specserve_server.messages.errors import is_messages_path, messages_error
from specserve_server.state.request_record import noted_error
from specserve_server.state.server_state import state_of
from specserve_server.wire.json_response import json_response

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler


@web.middleware
async def errors_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error becomes a JSON body."""
    try:
        return await handler(request)
    except ConnectionResetError:
        raise  # the client has disconnected
    except web.HTTPException as error:
        if error.status < 400:
            raise
        response = error_response(request, http_refusal(request, error) or error)
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
        return response
    except web.RequestPayloadError as error:
        response = error_response(request, error)
        request.content.feed_eof()  # or aiohttp reads on, fails likewise and drops the connection with the response
        response.force_close()
        return response
    except Exception as error:
        return error_response(request, error)


def error_response(request: web.Request, error: BaseException) -> web.Response:
    """In the format of the API that was called."""
    found = noted_error(request, error)
    path = without_prefix(request.path, state_of(request).config.root_path)
    body = messages_error(found) if is_messages_path(path) else found.body
    return json_response(body, status=found.status, headers=found.headers)
