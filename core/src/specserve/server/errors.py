"""Errors as the wire shows them: OpenAI's JSON body, statuses and retry headers, for every route and method.

Owns the outermost middleware. Knows no route. Messages are bounded; what is not a deliberate error is logged
with its traceback and shown as "internal error".
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from specserve.errors import EngineDeadError, QueueFullError, RequestError, ShuttingDownError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp.typedefs import Handler

MAX_MESSAGE = 1000
NO_RETRY = {"x-should-retry": "false"}
logger = logging.getLogger(__name__)


class GenerationError(Exception):
    """The engine ended a request with finish_reason "error"; the message is its own."""


class UnavailableError(Exception):
    """The engine is loading or draining: 503, try again."""


class UnauthorizedError(Exception):
    """The API key is missing or wrong: 401."""


def error_body(message: str, kind: str, *, param: str | None = None, code: str | int | None = None) -> dict[str, Any]:
    if len(message) > MAX_MESSAGE:
        message = message[: MAX_MESSAGE - 1] + "…"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def describe_error(error: BaseException) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Status, body and headers of an error."""
    if isinstance(error, RequestError):
        headers = {"Retry-After": str(error.retry_after)} if isinstance(error, QueueFullError) else {}
        return error.status, error_body(str(error), error.type, param=error.param, code=error.code), headers
    if isinstance(error, UnavailableError):
        return 503, error_body(str(error), "service_unavailable_error", code="unavailable"), {"Retry-After": "1"}
    if isinstance(error, UnauthorizedError):
        headers = {"WWW-Authenticate": "Bearer"}
        return 401, error_body(str(error), "authentication_error", code="invalid_api_key"), headers
    if isinstance(error, ShuttingDownError):
        return 503, error_body(str(error), "service_unavailable_error", code="shutting_down"), {"Retry-After": "1"}
    if isinstance(error, EngineDeadError):
        return 503, error_body(str(error) or "the engine has died.", "server_error", code="engine_dead"), NO_RETRY
    if isinstance(error, web.HTTPException):
        return error.status, error_body(http_message(error), "invalid_request_error", code=error.status), {}
    if isinstance(error, web.RequestPayloadError):
        message = "the body could not be read: it ends early, or is not what its Content-Encoding says."
        return 400, error_body(message, "invalid_request_error"), {}
    if isinstance(error, GenerationError):
        return 500, error_body(str(error), "server_error", code="generation_failed"), NO_RETRY
    logger.error("a request failed", exc_info=error)
    return 500, error_body("internal error; the server's log has the details.", "server_error"), NO_RETRY


def http_message(error: web.HTTPException) -> str:
    if isinstance(error, web.HTTPMethodNotAllowed):
        return f"{error.method} is not allowed here; use {', '.join(sorted(error.allowed_methods))}."
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return f"the body is too large. {error.text}"
    if isinstance(error, web.HTTPNotFound):
        return "there is no such route."
    return error.reason


def json_response(body: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(body), status=status, headers=headers, content_type="application/json", charset="utf-8"
    )


@web.middleware
async def errors_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except ConnectionResetError:
        raise  # the client is gone: nobody to tell
    except web.HTTPException as error:
        if error.status < 400:
            raise
        status, body, headers = describe_error(error)
        allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
        return json_response(body, status=status, headers={**headers, **allow})
    except web.RequestPayloadError as error:
        status, body, headers = describe_error(error)
        request.content.feed_eof()  # or aiohttp reads on, fails likewise and drops the connection with the answer
        response = json_response(body, status=status, headers=headers)
        response.force_close()
        return response
    except Exception as error:  # the border: every error becomes a body
        status, body, headers = describe_error(error)
        return json_response(body, status=status, headers=headers)
