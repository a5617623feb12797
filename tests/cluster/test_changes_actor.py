"""What a change comes to where replicas refuse, fail, die or are slow, without a cluster: the handle is a fake."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ray.exceptions import ActorDiedError
from ray.serve.exceptions import DeploymentUnavailableError

from specserve_ray.change_routes import LOAD, UNLOAD, Change
from specserve_ray.changes_actor import Changes
from specserve_ray.wire import Answer, ForwardedRequest, Head

UNDONE = "It was undone on the replicas that had accepted it."
NOT_UNDONE = "It could not be undone on all replicas that had accepted it: replace them, by an update."


def request(path: str = LOAD, **body: Any) -> ForwardedRequest:
    return ForwardedRequest("POST", path, (), json.dumps({"lora_name": "a", "lora_path": "dir", **body}).encode())


def answer(status: int) -> Answer:
    return Answer(Head(status, (), "r"), b'{"error":{"message":"No."}}' if status >= 400 else b"Success")


class FakeHandle:
    """Answers each broadcast with the next results, or raises them."""

    def __init__(self, *results: Any) -> None:
        self.results = list(results)
        self.calls: list[tuple[Any, ...]] = []

    def broadcast(self, *call: Any) -> FakeHandle:
        self.calls.append(call)
        return self

    async def results_async(self, *, timeout_s: float, return_exceptions: bool) -> list[Any]:
        assert timeout_s > 0
        assert return_exceptions
        found = self.results[len(self.calls) - 1]
        if isinstance(found, BaseException):
            raise found
        return list(found)


async def numbers(changes: Changes) -> list[int]:
    return [made.number for made in (await changes.since(0)).made]


async def test_a_change_that_all_accept_is_kept_with_its_number() -> None:
    changes = Changes(FakeHandle([answer(200), answer(200)], [answer(200), answer(200)]))
    first, second = await changes.apply(request()), await changes.apply(request(UNLOAD))
    assert (first.answer.head.status, first.number, second.number) == (200, 1, 2)
    assert await numbers(changes) == [2]


async def test_a_replica_that_died_meanwhile_does_not_count() -> None:
    changes = Changes(FakeHandle([ActorDiedError(), answer(200)]))
    assert ((await changes.apply(request())).answer.head.status, await numbers(changes)) == (200, [1])


async def test_what_all_refuse_is_answered_as_it_is_and_undone_nowhere() -> None:
    handle = FakeHandle([answer(404), answer(404)])
    changes = Changes(handle)
    assert (await changes.apply(request())).answer == answer(404)
    assert (len(handle.calls), await numbers(changes)) == (1, [])


@pytest.mark.parametrize(
    ("results", "undone", "status", "said"),
    [
        ([answer(200), answer(409)], [True, True], 409, f"No. {UNDONE}"),
        ([answer(200), answer(409)], [False, True], 409, f"No. {NOT_UNDONE}"),
        ([answer(200), answer(409)], [RuntimeError("x"), True], 409, f"No. {NOT_UNDONE}"),
        ([answer(200), RuntimeError("secret")], [True, True], 503, UNDONE),
        ([RuntimeError("secret"), answer(409)], [True, True], 409, f"No. {UNDONE}"),
        (TimeoutError(), [True, True], 503, UNDONE),
        (TimeoutError(), TimeoutError(), 503, NOT_UNDONE),
    ],
)
async def test_what_some_do_not_accept_is_undone(results: Any, undone: Any, status: int, said: str) -> None:
    handle = FakeHandle(results, undone)
    changes = Changes(handle)
    applied = await changes.apply(request())
    message = json.loads(applied.answer.body)["error"]["message"]
    assert (applied.answer.head.status, applied.number, await numbers(changes)) == (status, 0, [])
    assert message.endswith(said)
    assert "secret" not in message
    method, undoing = handle.calls[1]
    assert method == "undo"
    assert isinstance(undoing, Change)
    assert undoing.request.path == UNLOAD


@pytest.mark.parametrize("results", [DeploymentUnavailableError("app"), [ActorDiedError(), ActorDiedError()]])
async def test_without_a_replica_nothing_is_changed(results: Any) -> None:
    changes = Changes(FakeHandle(results))
    applied = await changes.apply(request())
    assert (applied.answer.head.status, dict(applied.answer.head.headers)["Retry-After"]) == (503, "1")
    assert await numbers(changes) == []


async def test_a_log_that_was_lost_comes_back_from_a_replica() -> None:
    before = Changes(FakeHandle([answer(200)]))
    await before.apply(request())
    after = Changes(FakeHandle([answer(200)]))
    await after.restore((await before.since(0)).made)
    assert (await after.apply(request(UNLOAD))).number == 2
