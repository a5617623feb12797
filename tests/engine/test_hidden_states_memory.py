"""Where hidden states are put: rows that no other step has, those of small steps one behind the other."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from specserve.batch import hidden_states
from specserve.batch.hidden_states import MIN_SHARED_ROWS, HiddenBuffers, as_one

H, LAYERS = 4, (0, 3)
X = torch.empty(0, dtype=torch.bfloat16)


@pytest.fixture(autouse=True)
def small_tensors(monkeypatch):
    """With room for the least number of rows."""
    monkeypatch.setattr(hidden_states, "SHARED_BYTES", 1)


def filled(buffers, counts):
    """Steps of `counts` rows, each with its number in all rows."""
    steps = [buffers.of_step(X, count) for count in counts]
    for number, step in enumerate(steps):
        for layer, states in step.items():
            states.fill_(2 * number + (layer == 3))
    return steps


@pytest.mark.parametrize(
    "counts",
    [[1] * (MIN_SHARED_ROWS + 3), [7] * 100, [1, 2, 3] * 40, [MIN_SHARED_ROWS // 4, 1] * 6, [MIN_SHARED_ROWS, 5, 5, 1]],
)
def test_no_row_belongs_to_two_steps(counts):
    for number, (step, count) in enumerate(zip(filled(HiddenBuffers(LAYERS, H), counts), counts, strict=True)):
        assert list(step) == list(LAYERS)
        for layer, states in step.items():
            assert states.shape == (count, H)
            assert states.dtype == X.dtype
            assert (states == 2 * number + (layer == 3)).all()


@pytest.mark.parametrize("counts", [[1] * 32, [3, 3, 1, 5, 5]])
def test_rows_of_consecutive_small_steps_follow_each_other(counts):
    buffers = HiddenBuffers(LAYERS, H)
    steps = [buffers.of_step(X, count)[0] for count in counts]
    row = 2 * H * X.element_size()
    for before, after in pairwise(steps):
        assert after.data_ptr() == before.data_ptr() + len(before) * row


def test_consecutive_steps_become_one():
    buffers = HiddenBuffers(LAYERS, H)
    steps = [buffers.of_step(X, 3) for _ in range(5)]
    (one,) = as_one(steps)
    for layer in LAYERS:
        assert one[layer].shape == (15, H)
        assert one[layer].data_ptr() == steps[0][layer].data_ptr()


def test_steps_of_several_tensors_stay_several():
    buffers = HiddenBuffers(LAYERS, H)
    steps = [buffers.of_step(X, 3) for _ in range(MIN_SHARED_ROWS // 2)]
    assert as_one(steps) is steps


def test_a_step_in_between_is_not_among_them():
    """As one that failed and was computed again."""
    buffers = HiddenBuffers(LAYERS, H)
    steps = [buffers.of_step(X, 3) for _ in range(3)]
    assert len(as_one([steps[0], steps[2]])) == 2


def test_steps_of_different_numbers_of_rows_become_one():
    buffers = HiddenBuffers(LAYERS, H)
    steps = [buffers.of_step(X, count) for count in (3, 1, 4, 4, 4, 2)]
    (one,) = as_one(steps)
    assert one[LAYERS[0]].shape == (18, H)
    for layer in LAYERS:
        assert one[layer].data_ptr() == steps[0][layer].data_ptr()


def test_nothing_is_allocated_where_no_layer_is_read():
    buffers = HiddenBuffers((), H)
    assert buffers.of_step(X, 3) == {}
    assert buffers.shared is None


def test_rows_in_between_are_noticed_though_the_number_of_all_rows_fits():
    """A large step has a tensor of its own; others took as many rows in between."""
    buffers = HiddenBuffers(LAYERS, H)
    first = buffers.of_step(X, 3)
    large = buffers.of_step(X, MIN_SHARED_ROWS)
    for _ in range(MIN_SHARED_ROWS // 16):
        buffers.of_step(X, 16)
    assert len(as_one([first, large, buffers.of_step(X, 3)])) == 3
