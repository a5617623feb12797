"""Processors in the native sampler: edits along a path, processors without edits, rows with NaN and infinity."""

from __future__ import annotations

import math
from array import array

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from native_cases import SETS, WHOLE_SETS, each_set, make_unusual, randn, some
from sampling_reference import CUTOFFS, EDITS, admitted, sampler, varied_rows

from covering import pairwise
from specserve.protocols import ProcessorState, ScoredRow
from specserve.sampling.edits import TorchRow
from specserve.sampling.sampler import TorchSampler
from specserve_cpu import _native

VOCAB = 64


class PlainProcessor(ProcessorState):
    """Implements `apply` only, no edits."""

    def __init__(self, states):
        self.states, self.paths = states, []

    def apply(self, logits, path):
        self.paths.append(path)
        for state in self.states:
            logits = state.apply(logits, path)
        return logits


@each_set
def test_a_processor_without_edits_gets_its_row_and_its_path(isa):
    logits, rows = randn(120, VOCAB, scale=3.0), varied_rows(120, VOCAB)
    expected = sampler(isa).target_tokens(logits, rows)
    before = logits.clone()
    processors = []
    for row in rows[::2]:
        processors.append(PlainProcessor(row.request.processors))
        row.request.processors = [processors[-1]]
    assert sampler(isa, 2).target_tokens(logits, rows) == expected
    assert [processor.paths for processor in processors] == [[row.path] for row in rows[::2]]
    assert torch.equal(logits, before)


def test_a_processor_without_edits_keeps_its_place_among_the_cores():
    request = admitted(VOCAB, temperature=0.0, logit_bias={9: 50.0})
    request.processors.append(PlainProcessor([]))
    request.processors[-1].apply = lambda logits, path: -logits.double()
    assert sampler(SETS[0]).target_tokens(torch.zeros(1, VOCAB), [ScoredRow(0, request, ())]) == [0]
    request.processors.reverse()
    assert sampler(SETS[0]).target_tokens(torch.zeros(1, VOCAB), [ScoredRow(0, request, ())]) == [9]


@some
@given(
    committed=st.lists(st.integers(0, VOCAB - 1), max_size=12),
    path=st.lists(st.integers(0, VOCAB - 1), max_size=5),
    edit=st.sampled_from(EDITS[1:]),
    cut=st.sampled_from(CUTOFFS),
    isa=st.sampled_from(SETS),
)
def test_draft_tokens_count_as_if_they_were_committed(committed, path, edit, cut, isa):
    logits = randn(1, VOCAB, scale=3.0)
    params = {"temperature": 0.8, **edit, **cut}
    drafted = admitted(VOCAB, seed=5, generated=committed, **params)
    committed_all = admitted(VOCAB, seed=5, generated=[*committed, *path], **params)
    expected = sampler(isa).target_tokens(logits, [ScoredRow(0, committed_all, ())])
    assert sampler(isa).target_tokens(logits, [ScoredRow(0, drafted, tuple(path))]) == expected
    for processor in drafted.processors:
        processor.commit(path)
    drafted.tokens += path
    assert sampler(isa).target_tokens(logits, [ScoredRow(0, drafted, ())]) == expected, (
        "sampling does not change the states"
    )


@each_set
def test_edited_logits_have_torchs_bits(isa):
    """Greedy tokens show one comparison each: with a rival that is equal, or 1 ulp larger or smaller."""
    penalties = array("q", [3, 5, 8]), array("f", [0, 1, 4]), 1.17, 0.3, -0.21
    biases = array("q", [5, 9]), array("f", [0.37, -1.9])
    logits = randn(VOCAB, scale=4.0)
    edited = logits.clone()
    TorchRow(edited).penalize(*penalties)
    TorchRow(edited).shift(*biases)
    for token in (3, 5, 8, 9):
        mine = edited[token]
        for rival in (mine, *(torch.nextafter(mine, torch.tensor(to)) for to in (-math.inf, math.inf))):
            logits[30] = rival
            targets = _native.TargetRows()
            targets.add_row(0, 0, 0, 0.0, 0, 1.0, 0.0)
            targets.penalize(*penalties)
            targets.shift(*biases)
            targets.keep_only(array("q", [token, 30]))
            best = token if mine >= rival else 30
            assert sampler(isa).native.target_tokens(logits[None], targets) == [best]


@each_set
@pytest.mark.parametrize("vocab_size", [5, 64, 9000])
def test_nan_and_infinity_are_accepted_and_nan_never_wins(isa, vocab_size):
    logits = make_unusual(randn(200, vocab_size, scale=3.0), 1)
    rows = varied_rows(200, vocab_size)
    tokens = sampler(isa, 2).target_tokens(logits, rows)
    assert tokens == [sampler(isa).target_tokens(logits, [row])[0] for row in rows]
    clean = torch.where(logits.isnan(), -math.inf, logits)
    assert all(
        not logits[i, t].isnan() or (clean[i] == -math.inf).all()
        for i, t in enumerate(sampler(isa).argmax_tokens(logits))
    )
    assert sampler(isa).argmax_tokens(logits) == TorchSampler().argmax_tokens(clean)


@pairwise(isa=WHOLE_SETS, cut=CUTOFFS, value=[-math.inf, math.nan])
def test_a_row_without_any_token_gives_token_0(isa, cut, value):
    rows = [ScoredRow(0, admitted(VOCAB, temperature=t, **cut), ()) for t in (0.0, 1.0)]
    assert sampler(isa).target_tokens(torch.full((1, VOCAB), value), rows) == [0, 0]


@pytest.mark.skipif(not {"avx2", "avx512"} <= set(SETS), reason="the processor lacks one of the two")
def test_avx2_samples_with_the_bits_of_avx512():
    logits, rows = randn(200, 8192, scale=3.0), varied_rows(200, 8192)
    avx512, avx2 = sampler("avx512"), sampler("avx2")
    assert avx512.target_tokens(logits, rows) == avx2.target_tokens(logits, rows)
    assert avx512.token_logprobs(logits, [9] * 200, [5] * 200) == avx2.token_logprobs(logits, [9] * 200, [5] * 200)
    a, b = torch.empty(100_000), torch.empty(100_000)
    avx512.native.gumbel_noise(1, 2, a)
    avx2.native.gumbel_noise(1, 2, b)
    assert torch.equal(a, b)
