"""Bad input to the native sampler: an exception that says what was wrong, never a crash."""

from __future__ import annotations

from array import array

import pytest
import torch
from native_cases import SETS
from sampling_reference import sampler

from specserve_cpu import _native


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        (torch.zeros(2, 8).double(), r"logits must be float32 \[any, any\]; got float64 \[2, 8\]"),
        (torch.zeros(8), r"logits must be float32 \[any, any\]; got float32 \[8\]"),
        (torch.zeros(8, 2).T, r"logits must be float32 \[any, any\], contiguous"),
        (torch.zeros(2, 0), r"logits must have columns; got \[2, 0\]"),
    ],
)
def test_wrong_logits_are_refused(logits, message):
    native = sampler(SETS[0]).native
    for call in (native.argmax_tokens, lambda x: native.target_tokens(x, _native.TargetRows())):
        with pytest.raises(ValueError, match=message):
            call(logits)
    with pytest.raises(ValueError, match=message):
        native.token_logprobs(logits, [0, 0], [0, 0])


def targets_with_row(row=0, index=0):
    targets = _native.TargetRows()
    targets.add_row(row, 0, index, 0.0, 0, 1.0, 0.0)
    return targets


@pytest.mark.parametrize(
    ("make_targets", "message"),
    [
        (lambda: targets_with_row(row=2), r"row must be in \[0, 2\); got 2"),
        (lambda: targets_with_row(row=-1), r"row must be in \[0, 2\); got -1"),
        (lambda: targets_with_row(index=-1), "index must be at least 0; got -1"),
        (lambda: _native.TargetRows().forbid(array("q", [1])), "there is no row yet: call add_row first"),
        (lambda: with_edit("forbid", array("q", [8])), r"token must be in \[0, 8\); got 8"),
        (lambda: with_edit("keep_only", array("q", [-1])), r"token must be in \[0, 8\); got -1"),
        (lambda: with_edit("forbid", array("i", [1])), r"ids must be int64 \[any\]; got int32 \[1\]"),
        (
            lambda: with_edit("shift", array("q", [1]), array("f", [1, 2])),
            r"values must be float32 \[1\]; got float32 \[2\]",
        ),
        (lambda: with_edit("replace_logits", torch.zeros(7)), r"a processor's logits must be \[8\]; got \[7\]"),
        (
            lambda: with_edit("replace_logits", torch.zeros(8).double()),
            r"logits must be float32 \[any\]; got float64 \[8\]",
        ),
    ],
)
def test_wrong_rows_and_edits_are_refused(make_targets, message):
    with pytest.raises(ValueError, match=message):
        sampler(SETS[0]).native.target_tokens(torch.zeros(2, 8), make_targets())


def with_edit(name, *arguments):
    targets = targets_with_row()
    getattr(targets, name)(*arguments)
    return targets


@pytest.mark.parametrize(
    ("tokens", "counts", "message"),
    [
        ([0], [0, 0], r"tokens and counts must have one element per row of logits; got 1 and 2 for \[2, 8\]"),
        ([0, 8], [0, 0], r"token must be in \[0, 8\); got 8"),
        ([-1, 0], [0, 0], r"token must be in \[0, 8\); got -1"),
    ],
)
def test_wrong_tokens_and_counts_are_refused(tokens, counts, message):
    with pytest.raises(ValueError, match=message):
        sampler(SETS[0]).token_logprobs(torch.zeros(2, 8), tokens, counts)
