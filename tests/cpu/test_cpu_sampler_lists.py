"""The lists of an edit may be any buffers: empty, unaligned, strided or read-only."""

from __future__ import annotations

import ctypes
import math
from array import array

import pytest
import torch
from native_cases import SETS, each_set, randn
from sampling_reference import admitted, sampler

from specserve.faults import RequestFault
from specserve.protocols import ProcessorState, ScoredRow
from specserve.sampling.edits import TorchRow
from specserve.sampling.sampler import TorchSampler
from specserve_cpu import _native

VOCAB = 8
NO_IDS, NO_VALUES = array("q"), array("f")
EDITS = {
    "penalize": lambda edits, ids, values: edits.penalize(ids, values, 1.5, 0.5, 0.25),
    "shift": lambda edits, ids, values: edits.shift(ids, values),
    "keep_only": lambda edits, ids, values: edits.keep_only(ids),
    "forbid": lambda edits, ids, values: edits.forbid(ids),
}
NO_TOKEN = -1
each_edit = pytest.mark.parametrize("name", EDITS)


def targets_with_row():
    targets = _native.TargetRows()
    targets.add_row(0, 0, 0, 0.0, 0, 1.0, 0.0)
    return targets


def token_after(*edits):
    targets = targets_with_row()
    for edit in edits:
        edit(targets)
    (token,) = sampler(SETS[0]).native.target_tokens(randn(1, VOCAB), targets)
    return token


def torch_token_after(*edits):
    row = TorchRow(randn(VOCAB))
    for edit in edits:
        edit(row)
    return int(row.logits.argmax()) if (row.logits > -math.inf).any() else NO_TOKEN


def unaligned(kind, numbers):
    raw = bytearray(1 + len(numbers) * ctypes.sizeof(kind))
    array_of_kind = (kind * len(numbers)).from_buffer(raw, 1)
    array_of_kind[:] = numbers
    return array_of_kind


def strided(kind, numbers):
    return torch.tensor([[number, 99] for number in numbers], dtype=kind)[:, 0]


BEST = int(randn(VOCAB).argmax())
IDS, VALUES = [BEST, (BEST + 3) % VOCAB], [-9.0, 4.0]
LISTS = {
    "unaligned": (unaligned(ctypes.c_int64, IDS), unaligned(ctypes.c_float, VALUES)),
    "strided": (strided(torch.int64, IDS), strided(torch.float32, VALUES)),
    "reversed": (memoryview(array("q", IDS[::-1]))[::-1], memoryview(array("f", VALUES[::-1]))[::-1]),
    "read-only": (memoryview(array("q", IDS)).toreadonly(), memoryview(array("f", VALUES)).toreadonly()),
}


@each_edit
@pytest.mark.parametrize("lists", [(NO_IDS, NO_VALUES), (unaligned(ctypes.c_int64, []), unaligned(ctypes.c_float, []))])
def test_an_edit_of_no_tokens_is_accepted(name, lists):
    edit = EDITS[name]
    assert token_after(lambda edits: edit(edits, *lists)) == (NO_TOKEN if name == "keep_only" else BEST)
    assert token_after(
        lambda edits: edits.forbid(array("q", [BEST])), lambda edits: edit(edits, *lists)
    ) == torch_token_after(lambda row: row.forbid(array("q", [BEST])), lambda row: edit(row, NO_IDS, NO_VALUES))


@each_edit
@pytest.mark.parametrize("layout", LISTS)
def test_lists_of_any_layout_are_read(name, layout):
    edit = EDITS[name]
    expected = torch_token_after(lambda row: edit(row, array("q", IDS), array("f", VALUES)))
    assert token_after(lambda targets: edit(targets, *LISTS[layout])) == expected


def bits_of(tokens, vocab_size):
    bits = array("I", bytes(4 * -(-vocab_size // 32)))
    for token in tokens:
        bits[token // 32] |= 1 << token % 32
    return bits


@each_set
@pytest.mark.parametrize("vocab_size", [1, 31, 32, 33, 64, 100, 8192])
def test_bits_keep_the_tokens_that_torch_keeps(isa, vocab_size):
    """Words of all ones, of all zeros, mixed, and a last one that is not full."""
    logits = randn(vocab_size, scale=3.0)
    for kept in (range(vocab_size), range(0, vocab_size, 3), range(vocab_size // 2, vocab_size), [vocab_size - 1]):
        row = TorchRow(logits.clone())
        row.keep_bits(bits_of(kept, vocab_size))
        assert torch.nonzero(row.logits > -math.inf).flatten().tolist() == list(kept)
        targets = targets_with_row()
        targets.keep_bits(bits_of(kept, vocab_size))
        (token,) = sampler(isa, 2).native.target_tokens(logits[None], targets)
        assert token == int(row.logits.argmax())


@pytest.mark.parametrize(
    "bits", [array("I"), array("I", [1, 2]), array("q", [1]), array("i", [1])], ids=["none", "more", "q", "i"]
)
def test_bits_of_another_size_or_type_are_refused(bits):
    with pytest.raises(ValueError, match="bits"):
        TorchRow(randn(VOCAB)).keep_bits(bits)
    with pytest.raises(ValueError, match="bits"):
        token_after(lambda targets: targets.keep_bits(bits))


def test_a_row_whose_edits_leave_no_token_is_the_fault_of_its_request():
    requests = [admitted(VOCAB, temperature=t, allowed_token_ids=(3,)) for t in (0.0, 1.0)]
    for request in requests:
        request.processors.append(Nothing())
    for choose in (sampler(SETS[0]), sampler(SETS[0], 2), TorchSampler()):
        for request in requests:
            rows = [ScoredRow(0, admitted(VOCAB, temperature=0.0), ()), ScoredRow(1, request, ())]
            with pytest.raises(RequestFault, match="left no token to choose from") as fault:
                choose.target_tokens(randn(2, VOCAB), rows)
            assert fault.value.request_id == request.id


class Nothing(ProcessorState):
    """Forbids all."""

    has_edits = True

    def edit(self, edits, path):
        edits.keep_bits(array("I", [0]))

    def apply(self, logits, path):
        self.edit(TorchRow(logits), path)
        return logits


def test_a_refused_edit_changes_nothing():
    """After the exception, the next edit has its own lists."""
    targets = targets_with_row()
    for ids, values in ((array("q", [1]), array("f", [1, 2])), (array("q", [1]), array("d", [1]))):
        with pytest.raises(ValueError, match="values must be float32"):
            targets.shift(ids, values)
    for token, value in ((1, 50.0), (2, 75.0)):  # not 50 twice
        targets.shift(array("q", [token]), array("f", [value]))
    assert sampler(SETS[0]).native.target_tokens(randn(1, VOCAB), targets) == [2]


class OneTensor(ProcessorState):
    """Returns every row in the same, unaligned memory."""

    def __init__(self):
        self.own = torch.frombuffer(bytearray(1 + 4 * VOCAB), dtype=torch.float32, offset=1)

    def apply(self, logits, path):
        self.own[:] = logits
        self.own[path[0]] += 100.0
        return self.own


def test_a_processor_may_return_every_row_in_the_same_memory():
    request = admitted(VOCAB, temperature=0.0)
    request.processors = [OneTensor()]
    rows = [ScoredRow(0, request, (token,)) for token in range(VOCAB)]
    assert sampler(SETS[0]).target_tokens(randn(1, VOCAB), rows) == list(range(VOCAB))
