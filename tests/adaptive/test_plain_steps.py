"""When a few steps in a row are plain, to see what that takes."""

from __future__ import annotations

import pytest

from specserve_adaptive.plain_steps import RAREST, STEPS, PlainSteps


def times(gain, num_steps, requests=4):
    """Runs of plain steps: where each begins, in steps, and how long it is. All other steps have draft tokens."""
    plain_steps, runs, is_plain = PlainSteps(), list[list[int]](), False
    for step in range(num_steps):
        wanted = plain_steps.wanted(requests, gain)
        if wanted and is_plain:
            runs[-1][1] += 1
        elif wanted:
            runs.append([step, 1])
        is_plain = wanted
        if not wanted:
            plain_steps.ran(requests, drafts=True)
    return runs


@pytest.mark.parametrize(("gain", "least", "most"), [(0.0, 50, 60), (0.05, 20, 26), (1.0, 6, 8)])
def test_plain_steps_come_the_more_often_the_less_drafts_gain(gain, least, most):
    runs = times(gain, 2000)
    assert least <= len(runs) <= most
    assert {length for _, length in runs} == {STEPS}


def test_at_first_they_come_soon_whatever_drafts_gain():
    assert [step for step, _ in times(3.0, 500)] == [16, 16 + STEPS + 64, 16 + STEPS + 64 + STEPS + 256]


def test_where_drafts_gain_much_they_cost_less_than_a_percent():
    lost = sum(length for _, length in times(1.0, 20 * RAREST))
    assert lost < 0.01 * 20 * RAREST


def test_where_plain_steps_come_anyway_none_are_asked_for():
    plain_steps = PlainSteps()
    for _ in range(500):
        for _ in range(10):
            assert not plain_steps.wanted(1, 0.0)
            plain_steps.ran(1, drafts=True)
        plain_steps.ran(1, drafts=False)


def test_steps_with_prompts_bring_no_more_of_them():
    """They show nothing of plain steps: the next ones are for later."""
    plain_steps = PlainSteps()
    for _ in range(16):
        plain_steps.ran(8, drafts=True)
    wanted = [plain_steps.wanted(8, 0.0) for _ in range(200)]  # nothing of them is told
    assert wanted == [True] * STEPS + [False] * (200 - STEPS)


def test_batches_of_other_sizes_count_apart():
    plain_steps = PlainSteps()
    for _ in range(16):
        plain_steps.ran(8, drafts=True)
    assert not plain_steps.wanted(2, 0.0)
    assert plain_steps.wanted(9, 0.0)
