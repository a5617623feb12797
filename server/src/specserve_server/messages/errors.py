"""Errors as Anthropic's clients read them: another body, the same status and headers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.errors import CONTEXT_LENGTH_EXCEEDED
from specserve_server.errors import ErrorResponse

if TYPE_CHECKING:
    from specserve_checks.json_types import JsonObject

PATH = "/v1/messages"
TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
"""By status; other errors of the client are invalid_request_error, and of the server api_error."""


def is_messages_path(path: str) -> bool:
    return path == PATH or path.startswith(f"{PATH}/")


def messages_error(error: ErrorResponse) -> ErrorResponse:
    """Of an error in OpenAI's format."""
    described = error.body["error"]
    assert isinstance(described, dict)
    message = described["message"]
    if described["code"] == CONTEXT_LENGTH_EXCEEDED:
        message = f"prompt is too long: {message}"  # clients look for these words
    kind = TYPES.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
    body: JsonObject = {"type": "error", "error": {"type": kind, "message": message}}
    return ErrorResponse(error.status, body, error.headers)
