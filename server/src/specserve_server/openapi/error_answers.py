"""Errors as the document describes them: which statuses a route may answer, and in which of two formats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_server.errors import ErrorBody
from specserve_server.messages.errors import MessagesErrorBody, is_messages_path

if TYPE_CHECKING:
    import msgspec

    from specserve_checks.json_types import JsonObject
    from specserve_server.operation import Operation

DESCRIPTIONS = {
    400: "The request is wrong: the message says what is, and what is allowed",
    401: "The API key is missing or wrong",
    403: "This server does not allow it",
    404: "Nothing is known by this name",
    409: "It is not possible now: the message says why",
    413: "The body is too large",
    429: "The queue is full, or a limit of this client is reached",
    500: "The request failed",
    503: "The server loads, drains or is dead",
    504: "The request ran longer than the server allows",
}
OF_EVERY_ROUTE = (500, 503)
OF_BODIES = (400, 413)


def error_type(path: str) -> type[msgspec.Struct]:
    return MessagesErrorBody if is_messages_path(path) else ErrorBody


def error_statuses(method: str, operation: Operation, *, needs_key: bool) -> list[int]:
    """Those that the operation describes as answers are none."""
    found = {*OF_EVERY_ROUTE, *operation.errors}
    if needs_key and not operation.is_public:
        found.add(401)
    if operation.body is not None:
        found |= set(OF_BODIES)
    if method == "post":
        found.add(429)
    return sorted(found - {answer.status for answer in operation.answers})


def headers_of(status: object) -> JsonObject:
    names = ["X-Request-Id", "Retry-After"] if status == 429 else ["X-Request-Id"]
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
