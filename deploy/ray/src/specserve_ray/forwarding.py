"""A request to one replica: sent, sent once more where the replica died before it answered, passed on as it answers.

An answer whose length is known is complete at the replica when it begins. It is passed on when all of it has come, so
that a replica that dies between its head and its body costs no answer.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING
from uuid import uuid4

from msgspec.structs import replace
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from specserve_ray.errors import DIED, error_answer, last_event
from specserve_ray.prompts import GENERATING
from specserve_ray.wire import Head

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ray.serve.handle import DeploymentHandle

    from specserve_ray.wire import ForwardedRequest

logger = logging.getLogger(__name__)
FAILURES = (RayError, RayServeException)
"""A replica that died or cannot be reached, or a fault in it; what it answers itself is none."""
EVENT_STREAM = "text/event-stream"
MAX_HELD_BYTES = 16 << 20
"""Longer answers are passed on as they come."""


class BrokenAnswerError(Exception):
    """The answer has begun and cannot be finished: the connection is to be closed."""


async def forward(streams: DeploymentHandle, request: ForwardedRequest) -> AsyncGenerator[Head | bytes, None]:
    """The head, then the body. Closing it aborts the request. `streams`: a handle of the replicas' method `stream`.
    Raises BrokenAnswerError."""
    is_safe = request.method in ("GET", "HEAD") or path_of(request) in GENERATING
    request = replace(request, key=replace(request.key, id=uuid4().hex))
    for attempt in range(2 if is_safe else 1):
        tried = replace(request, key=replace(request.key, attempt=attempt))
        async with aclosing(forward_once(streams, tried)) as parts:
            try:
                head = await anext(parts)
                assert isinstance(head, Head), "it comes first"
                held = [part async for part in parts] if is_held(head) else []
            except FAILURES as error:
                logger.warning("%s %s: no answer at attempt %d: %s", request.method, request.path, attempt + 1, error)
                continue
            yield head
            for part in held:
                yield part
            async with aclosing(finished(parts, request, head)) as body:
                async for part in body:
                    yield part
            return
    answer = error_answer(DIED, path_of(request))
    yield answer.head
    yield answer.body


async def finished(
    parts: AsyncGenerator[Head | bytes, None], request: ForwardedRequest, head: Head
) -> AsyncGenerator[bytes, None]:
    """The rest of an answer. A stream of events ends with an error where its replica dies."""
    last = b""
    try:
        async for part in parts:
            assert isinstance(part, bytes)
            last = part
            yield part
    except FAILURES as error:
        logger.warning("%s %s: the answer breaks off: %s", request.method, request.path, error)
        if not is_event_stream(head):
            raise BrokenAnswerError from error
        yield last_event(DIED, path_of(request), last)


async def forward_once(streams: DeploymentHandle, request: ForwardedRequest) -> AsyncGenerator[Head | bytes, None]:
    response = streams.remote(request)
    try:
        async for part in response:
            yield part
    except (asyncio.CancelledError, GeneratorExit):
        response.cancel()
        raise


def is_held(head: Head) -> bool:
    lengths = [value for name, value in head.headers if name.lower() == "content-length"]
    return bool(lengths) and all(value.isdecimal() and int(value) <= MAX_HELD_BYTES for value in lengths)


def path_of(request: ForwardedRequest) -> str:
    return request.path.partition("?")[0]


def is_event_stream(head: Head) -> bool:
    return any(name.lower() == "content-type" and value.startswith(EVENT_STREAM) for name, value in head.headers)
