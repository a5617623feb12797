"""Errors as OpenAI's clients read them: status, JSON body and retry headers.

Messages are bounded. What is not raised on purpose is logged with its traceback and answered as "internal error".
"""

from __future__ import annotations

import logging
import re
from typing import NamedTuple

import msgspec
from aiohttp import web

from specserve.errors import EngineDeadError, QueueFullError, RequestError, ShuttingDownError

MAX_MESSAGE_LENGTH = 1000
MAX_CODE_LENGTH = 64
NO_RETRY = {"x-should-retry": "false"}
RETRY = {"Retry-After": "1"}
logger = logging.getLogger("specserve.server.errors")


class GenerationError(Exception):
    """The engine ended a request with finish_reason "error"; the message is the engine's."""


class UnavailableError(Exception):
    """The engine is loading or draining: 503, try again."""


class UnauthorizedError(Exception):
    """The API key is missing or wrong: 401."""


class RateLimitError(RequestError):
    """This client asks more than it may: 429, try again after `retry_after` seconds."""

    status = 429
    type = "rate_limit_error"

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(message, code="rate_limit_exceeded")
        self.retry_after = retry_after


class TimeLimitError(Exception):
    """The request ran for too long and was aborted: 504."""


class ErrorDetail(msgspec.Struct):
    """`param`: the field that is wrong. `code`: a word for programs that handle this error."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct):
    error: ErrorDetail


class ErrorResponse(NamedTuple):
    status: int
    body: ErrorBody
    headers: dict[str, str]


def create_error_response(error: BaseException) -> ErrorResponse:
    if isinstance(error, RequestError):
        headers = {"Retry-After": str(error.retry_after)} if isinstance(error, QueueFullError | RateLimitError) else {}
        return ErrorResponse(
            error.status, error_body(str(error), error.type, param=error.param, code=error.code), headers
        )
    if isinstance(error, UnauthorizedError):
        headers = {"WWW-Authenticate": "Bearer"}
        return ErrorResponse(401, error_body(str(error), "authentication_error", code="invalid_api_key"), headers)
    if isinstance(error, web.HTTPException):
        body = error_body(error.text or error.reason, "invalid_request_error", code=status_code_word(error))
        return ErrorResponse(error.status, body, {})
    if isinstance(error, web.RequestPayloadError):
        message = "the body could not be read: it ends early, or is not what its Content-Encoding says."
        return ErrorResponse(400, error_body(message, "invalid_request_error"), {})
    return create_server_error_response(error)


def create_server_error_response(error: BaseException) -> ErrorResponse:
    """Errors that are not the client's."""
    if isinstance(error, UnavailableError):
        return ErrorResponse(503, error_body(str(error), "service_unavailable_error", code="unavailable"), RETRY)
    if isinstance(error, ShuttingDownError):
        return ErrorResponse(503, error_body(str(error), "service_unavailable_error", code="shutting_down"), RETRY)
    if isinstance(error, EngineDeadError):
        message = str(error) or "the engine has died."
        return ErrorResponse(503, error_body(message, "server_error", code="engine_dead"), NO_RETRY)
    if isinstance(error, GenerationError):
        return ErrorResponse(500, error_body(str(error), "server_error", code="generation_failed"), NO_RETRY)
    if isinstance(error, TimeLimitError):
        return ErrorResponse(504, error_body(str(error), "timeout_error", code="request_timeout"), NO_RETRY)
    logger.error("a request failed", exc_info=error)
    return ErrorResponse(500, error_body("internal error; the server's log has the details.", "server_error"), NO_RETRY)


def status_code_word(error: web.HTTPException) -> str:
    """`not_found`, of the status Not Found that a plugin's handler gave."""
    return re.sub(r"\W+", "_", error.reason.lower()).strip("_")[:MAX_CODE_LENGTH] or "http_error"


def error_body(message: str, error_type: str, *, param: str | None = None, code: str | None = None) -> ErrorBody:
    if len(message) > MAX_MESSAGE_LENGTH:
        message = message[: MAX_MESSAGE_LENGTH - 1] + "…"
    return ErrorBody(ErrorDetail(message, error_type, param, code))
