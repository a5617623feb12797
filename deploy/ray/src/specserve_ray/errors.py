"""Answers that no replica gave, in the formats of the APIs, and words added to those that one gave."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from specserve_ray.wire import Answer, Head
from specserve_server.errors import UnavailableError, create_error_response
from specserve_server.messages.errors import is_messages_path, messages_error

if TYPE_CHECKING:
    from specserve_ray.wire import Headers

JSON = "application/json; charset=utf-8"
RESPONSES = "/v1/responses"
DIED = "the replica that served this request has died; send it again."
NONE_READY = "no replica is ready; try again."
EVENT_END = b"\n\n"
SEQUENCE_NUMBER = re.compile(rb'"sequence_number":\s*(\d+)')


class StreamError(msgspec.Struct):
    """The last event of a stream of the Responses API."""

    code: str
    message: str
    sequence_number: int
    param: str | None = None
    type: str = "error"


def error_answer(message: str, path: str) -> Answer:
    """503 in the format of the API, with the header that makes clients try again."""
    found = create_error_response(UnavailableError(message))
    headers: Headers = (("Content-Type", JSON), *found.headers.items())
    body = messages_error(found) if is_messages_path(path) else found.body
    return Answer(Head(found.status, headers, ""), msgspec.json.encode(body))


def last_event(message: str, path: str, last_chunk: bytes) -> bytes:
    """Of a stream that cannot go on after `last_chunk`."""
    if path == RESPONSES:
        numbers = SEQUENCE_NUMBER.findall(last_chunk)
        number = int(numbers[-1]) + 1 if numbers else 0
        body = msgspec.json.encode(StreamError("unavailable", message, number))
    else:
        body = error_answer(message, path).body
    name = b"event: error\n" if path == RESPONSES or is_messages_path(path) else b""
    begun = b"" if last_chunk.endswith(EVENT_END) else EVENT_END
    return begun + name + b"data: " + body + EVENT_END


def explained(answer: Answer, sentence: str) -> Answer:
    """The error with a sentence more; as it is where it is in no format of ours."""
    try:
        body = msgspec.json.decode(answer.body, type=dict[str, dict[str, object]])
        message = body["error"]["message"]
    except (msgspec.DecodeError, KeyError):
        return answer
    body["error"]["message"] = f"{message} {sentence}"
    headers = tuple((name, value) for name, value in answer.head.headers if name.lower() != "content-length")
    head = msgspec.structs.replace(answer.head, headers=headers)
    return Answer(head, msgspec.json.encode(body))
