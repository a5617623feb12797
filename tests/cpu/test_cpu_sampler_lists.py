"""The lists of an edit may come from any buffer: empty ones, at odd addresses, with gaps, read-only."""

from __future__ import annotations

import ctypes
from array import array

import pytest
import torch
from native_cases import SETS, randn
from sampled import admitted, sampler

from specserve.protocols import ScoredRow
from specserve.sampling.edits import TorchRow
from specserve_cpu import _native

VOCAB = 8
NO_IDS, NO_VALUES = array("q"), array("f")
EDITS = {
    "penalize": lambda edits, ids, values: edits.penalize(ids, values, 1.5, 0.5, 0.25),
    "shift": lambda edits, ids, values: edits.shift(ids, values),
    "keep_only": lambda edits, ids, values: edits.keep_only(ids),
    "forbid": lambda edits, ids, values: edits.forbid(ids),
}
each_edit = pytest.mark.parametrize("name", EDITS)


def begun():
    targets = _native.TargetRows()
    targets.add_row(0, 0, 0, 0.0, 0, 1.0, 0.0)
    return targets


def token_after(*edits):
    targets = begun()
    for edit in edits:
        edit(targets)
    (token,) = sampler(SETS[0]).native.target_tokens(randn(1, VOCAB), targets)
    return token


def torch_token_after(*edits):
    row = TorchRow(randn(VOCAB))
    for edit in edits:
        edit(row)
    return int(row.logits.argmax())


def beside(kind, numbers):
    """The numbers one byte beside where they should begin."""
    raw = bytearray(1 + len(numbers) * ctypes.sizeof(kind))
    lent = (kind * len(numbers)).from_buffer(raw, 1)
    lent[:] = numbers
    return lent


def with_gaps(kind, numbers):
    return torch.tensor([[number, 99] for number in numbers], dtype=kind)[:, 0]


BEST = int(randn(VOCAB).argmax())
IDS, VALUES = [BEST, (BEST + 3) % VOCAB], [-9.0, 4.0]
LISTS = {
    "at odd addresses": (beside(ctypes.c_int64, IDS), beside(ctypes.c_float, VALUES)),
    "with gaps": (with_gaps(torch.int64, IDS), with_gaps(torch.float32, VALUES)),
    "backwards": (memoryview(array("q", IDS[::-1]))[::-1], memoryview(array("f", VALUES[::-1]))[::-1]),
    "read-only": (memoryview(array("q", IDS)).toreadonly(), memoryview(array("f", VALUES)).toreadonly()),
}


@each_edit
@pytest.mark.parametrize("lists", [(NO_IDS, NO_VALUES), (beside(ctypes.c_int64, []), beside(ctypes.c_float, []))])
def test_an_edit_of_no_tokens_is_taken_wherever_its_lists_lie(name, lists):
    edit = EDITS[name]
    assert token_after(lambda edits: edit(edits, *lists)) == (0 if name == "keep_only" else BEST)
    assert token_after(
        lambda edits: edits.forbid(array("q", [BEST])), lambda edits: edit(edits, *lists)
    ) == torch_token_after(lambda row: row.forbid(array("q", [BEST])), lambda row: edit(row, NO_IDS, NO_VALUES))


@each_edit
@pytest.mark.parametrize("lie", LISTS)
def test_lists_are_read_as_they_lie(name, lie):
    edit = EDITS[name]
    expected = torch_token_after(lambda row: edit(row, array("q", IDS), array("f", VALUES)))
    assert token_after(lambda targets: edit(targets, *LISTS[lie])) == expected


def test_an_edit_that_was_refused_leaves_no_trace():
    """Who catches the exception goes on: the lists of the next edit are its own."""
    targets = begun()
    for ids, values in ((array("q", [1]), array("f", [1, 2])), (array("q", [1]), array("d", [1]))):
        with pytest.raises(ValueError, match="values must be float32"):
            targets.shift(ids, values)
    for token, value in ((1, 50.0), (2, 75.0)):  # not 50 twice
        targets.shift(array("q", [token]), array("f", [value]))
    assert sampler(SETS[0]).native.target_tokens(randn(1, VOCAB), targets) == [2]


class OneTensor:
    """Answers every row in the same memory, one byte beside where numbers should begin."""

    def __init__(self):
        self.own = torch.frombuffer(bytearray(1 + 4 * VOCAB), dtype=torch.float32, offset=1)

    def apply(self, logits, path):
        self.own[:] = logits
        self.own[path[0]] += 100.0
        return self.own


def test_a_guest_may_answer_every_row_in_the_same_memory():
    request = admitted(VOCAB, temperature=0.0)
    request.processors = [OneTensor()]
    rows = [ScoredRow(0, request, (token,)) for token in range(VOCAB)]
    assert sampler(SETS[0]).target_tokens(randn(1, VOCAB), rows) == list(range(VOCAB))
