"""Native log-probabilities against float64: values, order, ties, and rows that are independent."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from native_cases import SETS, WHOLE_SETS, each_set, randn, some
from sampling_reference import sampler

from covering import pairwise
from specserve.sampling.sampler import TorchSampler

VOCABS = (1, 2, 15, 16, 17, 320, 8192, 50_257)
each_vocab = pytest.mark.parametrize("vocab_size", VOCABS)


@pairwise(isa=WHOLE_SETS, vocab_size=VOCABS, scale=[0.01, 2.0, 30.0])
def test_values_are_near_float64(isa, vocab_size, scale):
    logits = randn(12, vocab_size, seed=1, scale=scale)
    tokens, counts = [7 * i % vocab_size for i in range(12)], [(0, 1, 5, 20, 400, 60_000)[i % 6] for i in range(12)]
    exact = torch.log_softmax(logits.double(), -1)
    for i, found in enumerate(sampler(isa, 2).token_logprobs(logits, tokens, counts)):
        assert found.token_id == tokens[i]
        assert len(found.top_ids) == len(found.top_logprobs) == min(counts[i], vocab_size)
        values = torch.tensor([found.logprob, *found.top_logprobs], dtype=torch.float64)
        ids = [tokens[i], *found.top_ids]
        assert torch.allclose(values, exact[i][ids], rtol=1e-6, atol=1e-6)
        ranks = list(zip((-value for value in found.top_logprobs), found.top_ids, strict=True))
        assert ranks == sorted(ranks)
        # no other token is better, up to rounding
        exact[i][list(found.top_ids)] = -math.inf
        assert not ranks or exact[i].max().item() <= found.top_logprobs[-1] + 1e-6 * max(
            1.0, abs(found.top_logprobs[-1])
        )


@some
@given(
    values=st.lists(st.integers(-3, 3), min_size=1, max_size=60), count=st.integers(0, 70), isa=st.sampled_from(SETS)
)
def test_the_best_tokens_are_ordered_by_value_then_by_id(values, count, isa):
    found = sampler(isa).token_logprobs(torch.tensor([values]).float(), [0], [count])[0]
    assert found.top_ids == tuple(sorted(range(len(values)), key=lambda t: (-values[t], t))[:count])


@each_set
def test_logits_with_the_same_rounded_logprob_tie(isa):
    """Far below the maximum, neighbouring floats have the same log-probability: then the lower id comes first."""
    logits = torch.full((1, 50), -300.0)
    logits[0, 20] = 100.0
    small = torch.tensor(1.0)
    for t in (3, 9, 4, 7):
        logits[0, t] = small
        small = torch.nextafter(small, torch.tensor(2.0))
    found = sampler(isa).token_logprobs(logits, [3], [5])[0]
    assert found.top_ids == (20, 3, 4, 7, 9)
    assert len(set(found.top_logprobs[1:])) == 1
    assert TorchSampler().token_logprobs(logits, [3], [5])[0] == found


@each_set
@each_vocab
def test_a_row_has_the_same_bits_alone_in_a_batch_and_with_any_threads(isa, vocab_size):
    logits = randn(40, vocab_size, scale=3.0)
    tokens, counts = [i % vocab_size for i in range(40)], [i % 4 for i in range(40)]
    alone = [sampler(isa).token_logprobs(logits[i : i + 1], [tokens[i]], [counts[i]])[0] for i in range(40)]
    for count in (0, 1, 2, 3, 5, 40):
        for threads in (1, 2, 3):
            found = sampler(isa, threads).token_logprobs(logits[:count], tokens[:count], counts[:count])
            assert found == alone[:count]


@each_set
def test_tokens_at_minus_infinity_have_the_lowest_rank(isa):
    logits = torch.full((1, 40), -math.inf)
    logits[0, [30, 10]] = torch.tensor([1.0, 0.0])
    found = sampler(isa).token_logprobs(logits, [5], [4])[0]
    assert found.top_ids == (30, 10, 0, 1)
    assert (found.logprob, found.top_logprobs[2:]) == (-math.inf, (-math.inf, -math.inf))


@each_set
def test_a_nan_logit_counts_as_minus_infinity(isa):
    logits = torch.tensor([[0.0, math.nan, 1.0]])
    found = sampler(isa).token_logprobs(logits, [1], [2])[0]
    assert (found.logprob, found.top_ids) == (-math.inf, (2, 0))


@each_set
@pytest.mark.parametrize("row", [[math.nan] * 20, [-math.inf] * 20, [0.0, math.inf, math.nan] * 7])
def test_a_row_without_a_distribution_does_not_affect_others(isa, row):
    logits = torch.tensor([row, [0.0] * len(row)])
    without, other = sampler(isa).token_logprobs(logits, [3, 3], [2, 2])
    assert math.isnan(without.logprob)
    assert other.logprob == pytest.approx(-math.log(len(row)))
