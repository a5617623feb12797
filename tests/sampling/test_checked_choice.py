"""Tokens that are checked in place of masked: the same tokens, fewer masks, and a wrong answer ends one request."""

from __future__ import annotations

from array import array
from types import SimpleNamespace

import pytest
import torch

from specserve.batch.request import Request
from specserve.faults import RequestFault
from specserve.protocols import ProcessorState, ScoredRow
from specserve.sampling.checked_choice import target_tokens
from specserve.sampling.edits import TorchRow
from specserve.sampling.sampler import TorchSampler
from specserve_workbench.testing.requests import toy_request

VOCAB = 40


class Masks(ProcessorState):
    """Only even tokens; behind token 2 only `forced`."""

    has_edits = True

    def __init__(self, forced):
        self.forced, self.num_edits = forced, 0

    def edit(self, edits, path):
        self.num_edits += 1
        only = self.only(path)
        edits.keep_only(array("q", range(0, VOCAB, 2) if only is None else [only]))

    def apply(self, logits, path):
        self.edit(TorchRow(logits), path)
        return logits

    def only(self, path):
        return self.forced if path and path[-1] == 2 else None


class Checks(Masks):
    only_forbids = True

    def allows(self, path, token):
        return token % 2 == 0


def row_of(number, state, path=(), **params):
    wire = toy_request(f"r{number}", (1, 2), seed=number, **params)
    request = Request.admit(wire, seed=number, arrival=0.0, order=0, max_len=99)
    request.processors, request.processor_parts = [state], [SimpleNamespace(plugin="mine")]
    return ScoredRow(number, request, path)


@pytest.mark.parametrize("params", [{}, {"temperature": 0.9}, {"temperature": 0.9, "top_k": 5}], ids=str)
def test_checks_and_masks_choose_the_same_tokens(params):
    logits = torch.randn(200, VOCAB, generator=torch.Generator().manual_seed(3))
    checks, masks = [Checks(8) for _ in range(200)], [Masks(8) for _ in range(200)]
    paths = [(2,) if i % 5 == 0 else () for i in range(200)]
    found, expected = (
        target_tokens(TorchSampler(), logits, [row_of(i, state, paths[i], **params) for i, state in enumerate(states)])
        for states in (checks, masks)
    )
    assert found == expected
    made = sum(state.num_edits for state in checks)
    assert made < 120 if "top_k" not in params else made == 160
    assert sum(state.num_edits for state in masks) == 200


@pytest.mark.parametrize("forced", [-1, VOCAB, "8", 2.0, True])
def test_a_token_that_is_none_ends_its_request_alone(forced):
    rows = [row_of(0, Checks(8), (2,)), row_of(1, Checks(forced), (2,))]
    with pytest.raises(RequestFault, match="logits processor of mine named a token outside the vocabulary") as fault:
        target_tokens(TorchSampler(), torch.zeros(2, VOCAB), rows)
    assert fault.value.request_id == "r1"
