"""What every request passes before its handler: errors as JSON, the API key, the routes of plugins."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from aiohttp import web

from specserve.server.errors import UnauthorizedError, UnavailableError, create_error_response
from specserve.server.json_response import json_response
from specserve.server.messages.errors import is_messages_path, messages_error
from specserve.server.state import state_of

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

    from specserve.server.errors import ErrorResponse

PUBLIC_PATHS = ("/health", "/ping")
"""Served without an API key."""


@web.middleware
async def errors_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The outermost one: every error becomes a JSON body."""
    try:
        return await handler(request)
    except ConnectionResetError:
        raise  # the client has disconnected
    except web.HTTPException as error:
        if error.status < 400:
            raise
        status, body, headers = error_response(request, error)
        allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
        return json_response(body, status=status, headers={**headers, **allow})
    except web.RequestPayloadError as error:
        status, body, headers = error_response(request, error)
        request.content.feed_eof()  # or aiohttp reads on, fails likewise and drops the connection with the response
        response = json_response(body, status=status, headers=headers)
        response.force_close()
        return response
    except Exception as error:
        status, body, headers = error_response(request, error)
        return json_response(body, status=status, headers=headers)


def error_response(request: web.Request, error: BaseException) -> ErrorResponse:
    """In the format of the API that was called."""
    response = create_error_response(error)
    return messages_error(response) if is_messages_path(request.path) else response


@web.middleware
async def auth_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """`Authorization: Bearer KEY`, compared in constant time."""
    key = state_of(request).config.api_key
    if key is not None and request.path not in PUBLIC_PATHS:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        matches = hmac.compare_digest(given.strip().encode(errors="surrogateescape"), key.encode())
        if scheme.lower() != "bearer" or not matches:
            raise UnauthorizedError("the API key is missing or wrong; send Authorization: Bearer KEY.")
    return await handler(request)


@web.middleware
async def plugin_routes_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A path that the core does not serve is routed again in the plugins' application; on a clone, since aiohttp keeps
    the first route of a request object."""
    try:
        return await handler(request)
    except web.HTTPNotFound:
        state = state_of(request)
        if state.engine is None:
            raise UnavailableError(f"the server is {state.status}.") from None
        if state.plugin_routes is None:
            raise
    return await state.plugin_routes(request.clone())
