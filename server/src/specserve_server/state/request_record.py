"""What the server knows of one HTTP request beside its body: id, key, headers for its response, what it generated.

The record is on the request (`request[RECORD]`) and, for log lines, in a context variable, which threads and tasks that
the request starts inherit.
"""

from __future__ import annotations

import re
import time
import uuid
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from aiohttp import web

from specserve_server.errors import create_error_response

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_server.errors import ErrorResponse
    from specserve_server.generation.choices import Choice

REQUEST_ID = "X-Request-Id"
CLIENT = "X-Specserve-Client"
"""The address of the client, where another process of the server passes its request on."""
SANE_ID = re.compile(r"[A-Za-z0-9._~:/+=@-]{1,128}")
"""Of a client's id: nothing that could end a header, a log line or a quoted text."""


class Generation(NamedTuple):
    """`id`: of the answer. `choices`: `num_choices` for each prompt."""

    id: str
    model: str
    choices: Sequence[Choice]
    is_stream: bool
    num_choices: int = 1


class Failure(NamedTuple):
    """What a request was answered in place of what it asked for, or in the course of it. `code`: of the error's body,
    or its type; `exception`: the name of its class."""

    status: int
    code: str
    exception: str


@dataclass(slots=True, eq=False)
class RequestRecord:
    id: str
    started: float = field(default_factory=time.perf_counter)
    headers: dict[str, str] = field(default_factory=dict)
    """Of the response, unless its handler has set them."""
    key_name: str | None = None
    """The name of the API key that it came with; None where no key is required."""
    plugin_route: str | None = None
    """The pattern of the plugin's route that serves it, such as /v1/greetings/{name}."""
    generation: Generation | None = None
    """What it generates; None for other routes."""
    is_passed_on: bool = False
    """Another process of the server answers it, counts it and logs it."""
    failure: Failure | None = None
    trace_headers: dict[str, str] = field(default_factory=dict)
    """Of its span; empty where it is not traced."""


RECORD = web.RequestKey("specserve_record", RequestRecord)
CURRENT: ContextVar[RequestRecord | None] = ContextVar("specserve_request", default=None)


def request_id(given: str | None) -> str:
    """The client's, if it is sane, else a new one."""
    return given if given is not None and SANE_ID.fullmatch(given) else uuid.uuid4().hex


def noted_error(request: web.Request, error: BaseException) -> ErrorResponse:
    """What the error is answered with; the record has it from now on."""
    found = create_error_response(error)
    detail = found.body.error
    request[RECORD].failure = Failure(found.status, detail.code or detail.type, type(error).__name__)
    return found


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Called by aiohttp before the headers of any response are sent, of streams and errors too."""
    record = request.get(RECORD)
    if record is not None:
        for name, value in record.headers.items():
            response.headers.setdefault(name, value)
