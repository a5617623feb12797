"""Errors as JSON bodies: the middleware around all others that may raise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from specserve.server.errors import create_error_response
from specserve.server.json_response import json_response

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
        status, body, headers = create_error_response(error)
        allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
        return json_response(body, status=status, headers={**headers, **allow})
    except web.RequestPayloadError as error:
        status, body, headers = create_error_response(error)
        request.content.feed_eof()  # or aiohttp reads on, fails likewise and drops the connection with the response
        response = json_response(body, status=status, headers=headers)
        response.force_close()
        return response
    except Exception as error:
        status, body, headers = create_error_response(error)
        return json_response(body, status=status, headers=headers)
