"""The drafter feeds the index every committed token once, in one call per step, and keeps to its limits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from fake_index import FakeIndex

from specserve.batch.request import Request
from specserve.types import Draft, GenerateRequest
from specserve_ngram.drafter import NgramDrafter

if TYPE_CHECKING:
    from collections.abc import Sequence


def begin(drafter: NgramDrafter, name: str, prompt: Sequence[int], adapter: str = "") -> Request:
    wire = GenerateRequest(request_id=name, prompt_token_ids=tuple(prompt), adapter=adapter)
    request = Request.admit(wire, seed=0, arrival=0.0, order=0, max_len=1000)
    drafter.start(request)
    return request


def propose(drafter: NgramDrafter, requests: Sequence[Request], limits: Sequence[int]) -> list[Draft | None]:
    batch: Any = SimpleNamespace(spans=[SimpleNamespace(request=request) for request in requests])
    nothing: Any = None
    return drafter.propose(batch, nothing, nothing, limits)


@pytest.fixture
def drafter(index: FakeIndex) -> NgramDrafter:
    return NgramDrafter(index)  # type: ignore[arg-type]


def test_prompts_enter_whole_at_admission_in_their_namespace(drafter: NgramDrafter, index: FakeIndex) -> None:
    begin(drafter, "a", [1, 2, 3], "sql@1")
    assert index.texts == {1: [1, 2, 3]}
    assert index.namespaces == ["sql@1"]


def test_one_call_serves_the_whole_batch(drafter: NgramDrafter, index: FakeIndex) -> None:
    a, b, c = (begin(drafter, name, [1, 2, 1]) for name in "abc")
    a.tokens += [2]
    c.tokens += [5, 6, 7]
    drafts = propose(drafter, [a, b, c], [4, 2, 9])
    assert index.steps == [([1, 2, 3], [1, 0, 3], [4, 2, 9])]
    assert drafts[0] == Draft(tokens=(1, 2), survival=(0.5, 0.5), source="ngram")
    assert drafts[2] is None
    assert index.texts == {1: [1, 2, 1, 2], 2: [1, 2, 1], 3: [1, 2, 1, 5, 6, 7]}


def test_a_step_in_which_nothing_is_wanted_calls_nothing(drafter: NgramDrafter, index: FakeIndex) -> None:
    a = begin(drafter, "a", [1])
    a.tokens += [2]
    assert propose(drafter, [a], [0]) == [None]
    assert index.steps == []


def test_a_request_that_gets_no_draft_is_fed_when_it_gets_one(drafter: NgramDrafter, index: FakeIndex) -> None:
    a, b = begin(drafter, "a", [1]), begin(drafter, "b", [1])
    a.tokens += [2]
    b.tokens += [2]
    propose(drafter, [a, b], [0, 3])
    a.tokens += [3, 4]
    propose(drafter, [a, b], [3, 3])
    assert index.steps == [([2], [1], [3]), ([1, 2], [3, 0], [3, 3])]
    assert index.texts == {1: [1, 2, 3, 4], 2: [1, 2]}


def test_a_request_that_never_speculates_is_indexed_at_its_end(drafter: NgramDrafter, index: FakeIndex) -> None:
    a = begin(drafter, "a", [1])
    a.tokens += [2, 3]
    drafter.stop(a)
    assert index.ended == {1: [1, 2, 3]}


def test_spans_of_ended_and_of_unknown_requests_are_passed_over(drafter: NgramDrafter, index: FakeIndex) -> None:
    a, b = begin(drafter, "a", [1, 1]), begin(drafter, "b", [1, 1])
    drafter.stop(a)
    unknown = Request.admit(
        GenerateRequest(request_id="c", prompt_token_ids=(1,)), seed=0, arrival=0, order=0, max_len=9
    )
    drafts = propose(drafter, [a, b, unknown], [3, 3, 3])
    assert index.steps == [([2], [0], [3])]
    assert [draft is None for draft in drafts] == [True, False, True]


def test_stopping_twice_or_what_never_began_does_nothing(drafter: NgramDrafter, index: FakeIndex) -> None:
    a = begin(drafter, "a", [1])
    drafter.stop(a)
    drafter.stop(a)
    assert index.ended == {1: [1]}
    assert not drafter.requests


def test_a_step_that_fails_loses_nothing_and_feeds_nothing_twice(drafter: NgramDrafter, index: FakeIndex) -> None:
    a = begin(drafter, "a", [1])
    a.tokens += [2, 3]
    index.breaks = True
    with pytest.raises(RuntimeError):
        propose(drafter, [a], [4])
    a.tokens += [4]
    propose(drafter, [a], [4])
    assert index.texts == {1: [1, 2, 3, 4]}


@pytest.mark.parametrize(("most", "limit", "bound"), [(None, 9, 9), (4, 9, 4), (4, 2, 2)])
def test_the_option_only_lowers_the_planners_limit(index: FakeIndex, most: int | None, limit: int, bound: int) -> None:
    drafter = NgramDrafter(index, most)  # type: ignore[arg-type]
    propose(drafter, [begin(drafter, "a", [1])], [limit])
    assert index.steps == [([1], [0], [bound])]


def test_trees_keep_their_parents() -> None:
    index = FakeIndex(draft=lambda text, limit: ((7, 8, 9), (-1, -1, 0), (0.6, 0.3, 0.2)))
    drafter = NgramDrafter(index)  # type: ignore[arg-type]
    (draft,) = propose(drafter, [begin(drafter, "a", [1])], [3])
    assert draft == Draft(tokens=(7, 8, 9), parents=(-1, -1, 0), survival=(0.6, 0.3, 0.2), source="ngram")
