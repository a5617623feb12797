"""What is kept of one of several drafters."""

from __future__ import annotations

import pytest

from specserve.types import Draft
from specserve_adaptive.drafter_record import DrafterRecord, right_tokens


@pytest.mark.parametrize(("seconds", "steps"), [(0.01, 17), (1.0, 200)])
def test_a_drafter_that_was_not_called_is_due_when_drafting_takes_half_a_percent_of_the_time(seconds, steps):
    record = DrafterRecord(0)
    record.observe_cost(seconds)
    due = [record.is_due(step, 1, 1.0) for step in range(1, 400)]
    assert due.index(True) + 1 == steps
    assert all(due[steps:])


def test_what_a_draft_takes_is_a_moving_average_that_begins_with_the_first():
    record = DrafterRecord(0)
    record.observe_cost(1.0)
    assert record.seconds_per_draft == 1.0
    for _ in range(200):
        record.observe_cost(3.0)
    assert record.seconds_per_draft == pytest.approx(3.0, rel=0.01)


def test_a_first_draft_that_reads_a_prompt_is_soon_forgotten():
    record = DrafterRecord(0)
    for seconds in (0.01, *(0.001,) * 8):
        record.observe_cost(seconds)
    assert record.seconds_per_draft < 0.0011


@pytest.mark.parametrize(
    ("tokens", "right"), [((9,), 0), ((1,), 1 + 0.5 + 0.25), ((1, 2), 2 + 0.5), ((1, 2, 4), 2), ((1, 2, 3, 9), 3)]
)
def test_what_follows_the_last_known_token_counts_as_estimated(tokens, right):
    draft = Draft(tokens=(1, 2, 3), source="s")
    assert right_tokens(draft, [0.8, 0.4, 0.2], tokens) == pytest.approx(right)
