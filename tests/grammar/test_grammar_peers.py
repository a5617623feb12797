"""The benchmark of structured output against other engines: what it times, and which texts it calls valid."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from benchmarks.cases.grammar_peers import Row, checks
from benchmarks.peers.structured import BESIDE, FORCED, MAX_TOKENS, VLLM, Answered, Texts, judged
from benchmarks.peers.workers import together
from benchmarks.peers.workers.together import SLICE_TOKENS, Emitted, decode_together

if TYPE_CHECKING:
    from collections.abc import Callable

STEP_SECONDS = 0.25
RECORD = {"identifier": 7, "description": "a text", "status": "running", "is_archived": False}


class Clock:
    """Stands still between steps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(together, "time", SimpleNamespace(perf_counter=lambda: self.now))


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def scripted(clock: Clock, *steps: list[tuple[str, list[int], bool]]) -> Callable[[], list[Emitted]]:
    """An engine whose steps are known, each of which takes STEP_SECONDS."""
    remaining = iter(steps)

    def step() -> list[Emitted]:
        clock.now += STEP_SECONDS
        return [Emitted(*one) for one in next(remaining)]

    return step


def test_only_steps_in_which_all_requests_run_are_timed(clock: Clock) -> None:
    step = scripted(
        clock,
        [("a", [1], False)],
        [("a", [2, 3], False), ("b", [10], False)],
        [("a", [4], False), ("b", [11], False)],
        [("a", [5], False), ("b", [12, 13], False)],
        [("a", [6], False), ("b", [14], True)],
        [("a", [7, 8], False)],
        [("a", [9], True)],
    )
    prefill, decoding, texts = decode_together(step, ["a", "b"])
    assert prefill == {"seconds": 0.0, "num_tokens": 0}
    assert decoding["num_tokens"] == 5, "the first step of a slice is not timed"
    assert decoding["seconds"] == 2 * STEP_SECONDS
    assert texts == {"outputs": [[1, 2, 3, 4, 5, 6, 7, 8, 9], [10, 11, 12, 13, 14]]}


def test_a_slice_ends_after_so_many_tokens(clock: Clock) -> None:
    half = list(range(SLICE_TOKENS // 4 + 1))
    step = scripted(clock, *[[("a", half, False), ("b", half, n == 6)] for n in range(7)], [("a", half, True)])
    slices = [part["num_tokens"] for part in decode_together(step, ["a", "b"]) if "num_tokens" in part]
    assert slices == [0, 4 * len(half), 4 * len(half)]


def test_a_request_that_ends_before_another_begins_leaves_nothing_to_time(clock: Clock) -> None:
    step = scripted(clock, [("a", [1], True)], [("b", [2], False)], [("b", [3], True)])
    assert [*decode_together(step, ["a", "b"])] == [{"seconds": 0.0, "num_tokens": 0}, {"outputs": [[1], [2, 3]]}]


def test_texts_are_valid_cut_off_or_invalid():
    texts = {
        1: json.dumps({"records": [RECORD] * 8}),
        2: json.dumps({"records": [RECORD] * 7}),
        3: json.dumps({"records": [{**RECORD, "status": "unknown"}] * 8}),
        4: '{"records": [{"identifier": 7, ',
    }

    class Decoder:
        def decode(self, tokens: list[int]) -> str:
            return texts[tokens[0]]

    outputs = [[1], [1] * MAX_TOKENS, [2], [3], [4], [4] * MAX_TOKENS]
    assert judged(outputs, Decoder()) == Texts(num_valid=2, num_cut=1, invalid=(texts[2], texts[3], texts[4]))


def test_an_engine_is_compared_with_the_one_of_the_same_kind_that_ran():
    answers = {VLLM: [Answered(80, Texts(8))] * 2, FORCED: [Answered(400, Texts(7, 0, ("{",)))] * 2}
    row = Row(0.0, 8, {}, {**answers, BESIDE: [Answered(600, Texts(8))]})
    assert row.ratios == {VLLM: 1.0, FORCED: 5.0}, "the n-gram speculation of the other engine crashed"
    missed = [check.what for check in checks(row) if not check.met]
    assert missed == [f"greedy, 8 concurrent, {FORCED}, invalid texts"]
