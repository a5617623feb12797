"""Prompts too long to enter at once: no draft meanwhile, the right ones afterwards, nothing lost."""

from __future__ import annotations

import time
from array import array
from random import Random
from typing import Any

import pytest

from specserve_ngram._native import Index

PROMPT = [Random(1).randrange(1_000_000) for _ in range(40_000)]
OPTIONS: dict[str, Any] = {
    "match_type": "learned", "capacity": 1_000_000, "generations": 4, "shared": True, "min_match": 1, "max_match": 64,
    "min_breadth": 1, "max_breadth": 10, "max_depth": 16, "min_survival": 0.01,
}  # fmt: skip


def ints(values: list[int]) -> array[int]:
    return array("i", values)


def step(index: Index, handle: int, tokens: list[int]) -> tuple[int, ...] | None:
    (draft,) = index.step(array("q", [handle]), ints(tokens), ints([len(tokens)]), ints([8]))
    return None if draft is None else draft[0]


@pytest.fixture
def index() -> Index:
    return Index(**OPTIONS)


def test_a_long_prompt_gives_no_draft_until_it_is_entered_and_then_the_right_one(index: Index) -> None:
    handle = index.start("", ints(PROMPT + PROMPT[100:110]))
    drafts = [step(index, handle, [PROMPT[110 + i]]) for i in range(12)]
    missing = drafts.index(next(draft for draft in drafts if draft))
    assert 1 <= missing <= 8
    assert drafts[:missing] == [None] * missing
    assert all(draft is not None and draft[0] == PROMPT[111 + i] for i, draft in enumerate(drafts) if i >= missing)
    assert index.stats()["tokens"] == len(PROMPT) + 10 + 12


def test_other_requests_are_served_meanwhile(index: Index) -> None:
    index.start("", ints(PROMPT))
    short = index.start("", ints([5, 6, 7, 8, 5, 6]))
    draft = step(index, short, [])
    assert draft is not None
    assert draft[:2] == (7, 8)


def test_two_long_prompts_take_turns(index: Index) -> None:
    handles = [index.start(name, ints(PROMPT + PROMPT[:20])) for name in "ab"]
    for _ in range(20):
        drafts = index.step(array("q", handles), ints([]), ints([0, 0]), ints([4, 4]))
    assert [draft and draft[0] for draft in drafts] == [tuple(PROMPT[20:24])] * 2


def wait_for_the_ended(index: Index) -> None:
    """They are entered a little in every step."""
    handle = index.start("elsewhere", ints([]))
    for _ in range(60):
        step(index, handle, [])
    index.stop(handle, ints([]))


def test_nothing_is_lost_of_a_request_that_stops_before_its_prompt_is_entered(index: Index) -> None:
    index.stop(index.start("", ints(PROMPT)), ints([1, 2, 3, 4]))
    assert index.stats()["requests"] == 0
    wait_for_the_ended(index)
    assert index.stats()["tokens"] == len(PROMPT) + 4
    draft = step(index, index.start("", ints([*PROMPT[-10:], 1, 2])), [])
    assert draft is not None
    assert draft[:2] == (3, 4)


def test_an_output_that_comes_whole_is_not_lost(index: Index) -> None:
    index.stop(index.start("", ints([1, 2])), ints(PROMPT[:5000]))
    wait_for_the_ended(index)
    assert index.stats()["tokens"] == 2 + 5000
    draft = step(index, index.start("", ints(PROMPT[4000:4010])), [])
    assert draft is not None
    assert draft[0] == PROMPT[4010]


def test_requests_that_never_step_do_not_pile_up(index: Index) -> None:
    """With drafts turned off the index sees prompts and whole outputs only."""
    for _ in range(5):
        for at in range(0, 36_000, 3000):
            index.stop(index.start("", ints(PROMPT[at : at + 100])), ints(PROMPT[at + 100 : at + 3000]))
    assert index.stats()["tokens"] >= 5 * 36_000 - 30_000


@pytest.mark.parametrize("match_type", ["learned", "prob", "bfs"])
def test_no_call_takes_long_however_long_the_prompt(match_type: Any) -> None:
    """The last token of a run of one token, and every prefix of it, is the costliest text."""
    index = Index(**{**OPTIONS, "match_type": match_type})
    begin = time.perf_counter()
    handle = index.start("", ints([7] * 200_000))
    slowest = time.perf_counter() - begin
    for _ in range(30):
        begin = time.perf_counter()
        step(index, handle, [])
        slowest = max(slowest, time.perf_counter() - begin)
    assert slowest < 0.5
