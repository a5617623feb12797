"""A request whose replica dies before, within or after its answer, without a cluster: the handle is a fake."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from ray.exceptions import ActorDiedError

from specserve_ray.forwarding import MAX_HELD_BYTES, BrokenAnswerError, forward
from specserve_ray.wire import ForwardedRequest, Head, RoutingKey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

JSON = Head(200, (("content-type", "application/json"),), "r1")
WHOLE = Head(200, (("content-type", "application/json"), ("Content-Length", "2")), "r1")
LONG = Head(200, (("Content-Length", str(MAX_HELD_BYTES + 1)),), "r1")
EVENTS = Head(200, (("Content-Type", "text/event-stream; charset=utf-8"),), "r1")
DIES = ActorDiedError()


class FakeResponse:
    """Gives its parts, and raises those that are errors."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts, self.is_cancelled = parts, False

    async def __aiter__(self) -> AsyncIterator[Any]:
        for part in self.parts:
            if isinstance(part, BaseException):
                raise part
            yield part

    def cancel(self) -> None:
        self.is_cancelled = True


class FakeHandle:
    def __init__(self, *answers: Sequence[Any]) -> None:
        self.responses = [FakeResponse(parts) for parts in answers]
        self.requests: list[ForwardedRequest] = []

    def remote(self, request: ForwardedRequest) -> FakeResponse:
        self.requests.append(request)
        return self.responses[len(self.requests) - 1]


def completion(method: str = "POST", path: str = "/v1/completions") -> ForwardedRequest:
    return ForwardedRequest(method, path, (), b"{}", RoutingKey(chain=(b"x",)))


async def test_a_request_is_sent_once_more_where_no_answer_had_begun() -> None:
    handle = FakeHandle([DIES], [JSON, b"{}"])
    assert [part async for part in forward(handle, completion())] == [JSON, b"{}"]
    first, second = handle.requests
    assert (first.key.attempt, second.key.attempt) == (0, 1)
    assert first.key.id == second.key.id != ""
    assert second.key.chain == (b"x",)


@pytest.mark.parametrize("begun", [[WHOLE], [WHOLE, b"{"]], ids=["head", "body"])
async def test_an_answer_of_known_length_that_breaks_off_is_asked_for_once_more(begun: list[Any]) -> None:
    handle = FakeHandle([*begun, DIES], [WHOLE, b"{", b"}"])
    assert [part async for part in forward(handle, completion())] == [WHOLE, b"{", b"}"]
    assert [request.key.attempt for request in handle.requests] == [0, 1]


async def test_an_answer_of_known_length_that_may_have_had_an_effect_is_answered_503() -> None:
    handle = FakeHandle([WHOLE, DIES], [WHOLE, b"{}"])
    head, _ = [part async for part in forward(handle, completion(path="/v1/mine"))]
    assert (head.status, len(handle.requests)) == (503, 1)


async def test_a_long_answer_is_passed_on_as_it_comes() -> None:
    parts = forward(FakeHandle([LONG, b"a", DIES], []), completion())
    assert [await anext(parts), await anext(parts)] == [LONG, b"a"]
    with pytest.raises(BrokenAnswerError):
        await anext(parts)


async def test_a_request_that_dies_twice_is_answered_503_and_may_be_sent_again() -> None:
    head, body = [part async for part in forward(FakeHandle([DIES], [DIES]), completion())]
    assert (head.status, dict(head.headers)["Retry-After"]) == (503, "1")
    assert json.loads(body)["error"]["message"] == "the replica that served this request has died; send it again."


@pytest.mark.parametrize(
    ("method", "path", "attempts"), [("POST", "/v1/mine", 1), ("GET", "/v1/mine", 2), ("DELETE", "/v1/responses/a", 1)]
)
async def test_what_may_have_had_an_effect_is_not_sent_again(method: str, path: str, attempts: int) -> None:
    handle = FakeHandle([DIES], [DIES])
    head, _ = [part async for part in forward(handle, completion(method, path))]
    assert (head.status, len(handle.requests)) == (503, attempts)


async def test_a_stream_of_events_ends_with_an_error_and_is_not_sent_again() -> None:
    handle = FakeHandle([EVENTS, b"data: {}\n\n", DIES], [])
    *begun, last = [part async for part in forward(handle, completion())]
    assert begun == [EVENTS, b"data: {}\n\n"]
    assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "unavailable"
    assert len(handle.requests) == 1


async def test_an_answer_of_unknown_length_that_breaks_off_breaks_the_connection() -> None:
    parts = forward(FakeHandle([JSON, b'{"a"', DIES]), completion())
    assert [await anext(parts), await anext(parts)] == [JSON, b'{"a"']
    with pytest.raises(BrokenAnswerError):
        await anext(parts)


async def test_a_client_that_leaves_cancels_its_request() -> None:
    handle = FakeHandle([EVENTS, b"1", b"2"])
    parts = forward(handle, completion())
    assert [await anext(parts), await anext(parts)] == [EVENTS, b"1"]
    await parts.aclose()
    assert handle.responses[0].is_cancelled
