"""Hidden states that wait for a draft model: rows of steps, gathered in order, and copied where they have to wait."""

from __future__ import annotations

import random

import pytest
import torch

from specserve.draft_models.hidden_rows import (
    LONG_STEP,
    HiddenRows,
    JoinedHidden,
    StepHidden,
    gather,
    num_rows,
    split_off,
)

W = 6


def a_step(num_rows, first=0):
    """Rows first, first + 1, ... that hold their own numbers, of two layers."""
    rows = torch.arange(first, first + num_rows, dtype=torch.float32)[:, None]
    layers = {3: rows.expand(-1, W // 2), 1: 1000 + rows.expand(-1, W // 2)}
    return StepHidden(layers, (3, 1))


def numbers(rows):
    return rows[:, 0].int().tolist()


def test_layers_are_joined_in_the_order_in_which_the_drafter_names_them():
    joined = a_step(2, first=5).joined()
    assert joined.tolist() == [[5.0] * 3 + [1005.0] * 3, [6.0] * 3 + [1006.0] * 3]


def test_a_single_layer_is_not_copied():
    rows = torch.randn(4, W)
    assert StepHidden({2: rows}, (2,)).joined() is rows


def test_a_step_is_joined_once():
    step = a_step(3)
    assert step.joined() is step.joined()


def test_all_rows_of_a_step_in_order_are_not_copied():
    step = a_step(4)
    assert gather([HiddenRows(step, range(2)), HiddenRows(step, range(2, 4))]) is step.joined()


@pytest.mark.parametrize("seed", range(20))
def test_rows_of_several_steps_are_gathered_in_the_order_of_the_entries(seed):
    rng = random.Random(seed)
    steps, first = [], 0
    for _ in range(rng.randint(1, 4)):
        steps.append((first, a_step(size := rng.randint(1, 9), first), size))
        first += size
    entries, expected = [], []
    for _ in range(rng.randint(1, 12)):
        begin, step, size = rng.choice(steps)
        rows = [rng.randrange(size) for _ in range(rng.randint(0, 5))]
        entries.append(HiddenRows(step, rows))
        expected += [begin + row for row in rows]
    assert num_rows(entries) == len(expected)
    assert numbers(gather(entries)) == expected


@pytest.mark.parametrize("count", range(7))
def test_the_last_rows_of_long_steps_are_split_off_as_copies(count):
    step = a_step(LONG_STEP + 1)
    entries = [HiddenRows(step, [1, 4]), HiddenRows(step, [5]), HiddenRows(a_step(2, first=20), range(2))]
    kept = split_off(entries, count)
    assert num_rows(kept) == min(count, 5)
    if kept:
        assert numbers(gather(kept)) == [1, 4, 5, 20, 21][max(0, 5 - count) :]
    step.joined().zero_()
    assert all(isinstance(entry.source, JoinedHidden) for entry in kept if entry.source.num_rows > 2)
    if kept:
        assert numbers(gather(kept)) == [1, 4, 5, 20, 21][max(0, 5 - count) :]


def test_nothing_is_split_off_of_nothing():
    assert split_off([], 3) == split_off([HiddenRows(a_step(2), range(2))], 0) == []
