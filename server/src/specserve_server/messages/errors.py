"""Errors as Anthropic's clients read them: another body, the same status and headers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from specserve.errors import CONTEXT_LENGTH_EXCEEDED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve_server.errors import ErrorResponse

ErrorType = Literal[
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "not_found_error",
    "request_too_large",
    "rate_limit_error",
    "overloaded_error",
    "api_error",
]
PATH = "/v1/messages"
TYPES: Mapping[int, ErrorType] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
"""By status; other errors of the client are invalid_request_error, and of the server api_error."""


class MessagesErrorDetail(msgspec.Struct):
    type: ErrorType
    message: str


class MessagesErrorBody(msgspec.Struct):
    type: Literal["error"]
    error: MessagesErrorDetail


def is_messages_path(path: str) -> bool:
    return path == PATH or path.startswith(f"{PATH}/")


def messages_error(error: ErrorResponse) -> MessagesErrorBody:
    """Of an error in OpenAI's format."""
    message = error.body.error.message
    if error.body.error.code == CONTEXT_LENGTH_EXCEEDED:
        message = f"prompt is too long: {message}"  # clients look for these words
    kind = TYPES.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
    return MessagesErrorBody("error", MessagesErrorDetail(kind, message))
