"""The benchmark of our heads in other engines: which requests it compares, and what it calls the same."""

from __future__ import annotations

import math

import pytest
from benchmarks.cases.heads_elsewhere import Compared, Counted, checks_of, compared


def test_tokens_of_a_step_leave_out_the_token_of_the_prompt() -> None:
    there, here = [Counted([1, 2, 3, 4, 5, 6, 7], 2)], [Counted([1, 2, 3, 4, 5, 6, 7], 3)]
    found = compared(here, there)
    assert found == Compared(alike=1, ours=2.0, theirs=3.0)
    assert found.percent == pytest.approx(50)


def test_requests_with_other_texts_elsewhere_are_counted_out() -> None:
    here = [Counted([1, 2, 3], 1), Counted([4, 5, 6], 2)]
    there = [Counted([1, 2, 3], 1), Counted([4, 5, 7], 1)]
    assert compared(here, there) == Compared(alike=1, ours=2.0, theirs=2.0)


def test_no_text_that_is_the_same_meets_no_target() -> None:
    found = compared([Counted([1, 2], 1)], [Counted([1, 3], 1)])
    assert math.isnan(found.ours)
    assert not any(check.met for check in checks_of("a head", found, 1))


@pytest.mark.parametrize(("theirs", "met"), [(2.05, True), (1.95, True), (2.07, False), (1.93, False)])
def test_lengths_may_differ_by_three_percent_in_both_directions(theirs: float, met: bool) -> None:
    difference, _ = checks_of("a head", Compared(alike=9, ours=2.0, theirs=theirs), 10)
    assert difference.met is met


@pytest.mark.parametrize(("alike", "met"), [(9, True), (8, False)])
def test_nine_of_ten_texts_have_to_be_the_same(alike: int, met: bool) -> None:
    _, share = checks_of("a head", Compared(alike, ours=2.0, theirs=2.0), 10)
    assert share.met is met
