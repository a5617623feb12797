"""Native target tokens: those of the definitions and of torch, whatever the other rows and the number of threads."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from native_cases import SETS, WHOLE_SETS, each_set, many, randn
from sampling_reference import CUTOFFS, admitted, cutoff, sampler, valid_tokens, varied_rows

from covering import covering, pairwise
from specserve.protocols import ScoredRow
from specserve.sampling.noise import gumbel_noise
from specserve.sampling.scores import scores
from specserve.sampling.seeds import row_key
from specserve.types import SamplingParams
from specserve_workbench.testing.reference import gumbel

if TYPE_CHECKING:
    from torch import Tensor

VOCAB = 300
VOCABS = (1, 2, 5, 16, 17, 63, 320, 8192, 50_257)


def peaked(rows: int, vocab_size: int) -> Tensor:
    """Like a language model's: most logits far below a few."""
    x = randn(rows, vocab_size, seed=vocab_size, scale=2.5)
    tokens = torch.randint(0, vocab_size, (rows, 12), generator=torch.Generator().manual_seed(1))
    return x.scatter_add_(1, tokens, randn(rows, 12, seed=2).abs() * 9)


@pairwise(isa=WHOLE_SETS, vocab_size=[1, 2, 5, 17, 63, 320], make=[peaked, randn])
def test_tokens_are_those_of_the_definitions(isa, vocab_size, make):
    logits, rows = make(80, vocab_size), varied_rows(80, vocab_size)
    for row, token in zip(rows, sampler(isa).target_tokens(logits, rows), strict=True):
        assert token in valid_tokens(logits[row.row].tolist(), row), row


@pairwise(isa=WHOLE_SETS, vocab_size=[320, 8192, 50_257], make=[peaked, randn])
def test_tokens_are_those_of_torch_unless_two_scores_are_almost_equal(isa, vocab_size, make):
    logits, rows = make(200, vocab_size), varied_rows(200, vocab_size)
    torch_scores = scores(logits, rows)
    for row, token in zip(torch_scores, sampler(isa, 2).target_tokens(logits, rows), strict=True):
        best = row.max().item()
        assert row[token].item() >= best - 1e-5 * max(1.0, abs(best))


@pairwise(isa=WHOLE_SETS, vocab_size=VOCABS, threads=[2, 3])
def test_a_row_has_the_same_token_alone_in_a_batch_and_with_any_threads(isa, vocab_size, threads):
    logits, rows = peaked(40, vocab_size), varied_rows(40, vocab_size)
    before = logits.clone()
    alone = [sampler(isa).target_tokens(logits, [row])[0] for row in rows]
    for count in (1, 2, 3, 5, 6, 17, 40):
        for each in (sampler(isa), sampler(isa, threads)):
            assert each.target_tokens(logits, rows[:count]) == alone[:count]
            assert each.target_tokens(logits, rows[::-1][:count]) == alone[::-1][:count]
    assert [sampler(isa, threads).target_tokens(logits, [row])[0] for row in rows] == alone
    assert torch.equal(logits, before), "the logits are unchanged"


SCALED = [(1.0, 0.0), (1.0, 2.0), (1.0, 12.0), (1e-5, 3.0), (0.05, 1.0), (50.0, 9.0), (1.0, 1e30)]
"""Temperatures, and what logits are multiplied with."""


@pairwise(isa=WHOLE_SETS, vocab_size=VOCABS, scaled=SCALED)
def test_pruning_changes_no_token(isa, vocab_size, scaled):
    temperature, scale = scaled
    logits = randn(16, vocab_size, seed=3, scale=scale)
    requests = [admitted(vocab_size, seed=i, prompt=[0], temperature=temperature) for i in range(16)]
    noise = torch.empty(16, vocab_size)
    for i in range(16):
        sampler(isa).native.gumbel_noise(i, 0, noise[i])
    expected = (logits / torch.tensor(temperature) + noise).max(-1).indices.tolist()
    assert sampler(isa).target_tokens(logits, [ScoredRow(i, r, ()) for i, r in enumerate(requests)]) == expected


@each_set
def test_the_noise_is_that_of_the_core(isa):
    native = torch.empty(60_001)
    for seed in (0, 7, 2**63 + 5):
        sampler(isa).native.gumbel_noise(seed, 9, native)
        core = gumbel_noise([row_key(seed, 9)], 60_001, torch.device("cpu"))[0]
        assert (native - core).abs().max() < 2e-6
        for token in (0, 15, 16, 60_000):
            assert native[token].item() == pytest.approx(gumbel(seed, 9, token), rel=1e-5, abs=1e-6)
        part = torch.empty(77)
        sampler(isa).native.gumbel_noise(seed, 9, part)
        assert torch.equal(part, native[:77])


@covering(("isa", "vocab_size", "threads"), isa=WHOLE_SETS, vocab_size=VOCABS, threads=[1, 2])
def test_of_equal_maxima_the_lowest_id_wins(isa, vocab_size, threads):
    x = torch.randint(0, 3, (40, vocab_size), generator=torch.Generator().manual_seed(1)).float()
    x[0], x[1], x[2] = 0.0, -math.inf, -0.0
    x[2, ::3] = 0.0
    for count in (0, 1, 3, 40):
        expected = [row.index(max(row)) for row in x[:count].tolist()]
        assert sampler(isa, threads).argmax_tokens(x[:count]) == expected
        greedy = [ScoredRow(i, admitted(vocab_size, prompt=[0], temperature=0.0), ()) for i in range(count)]
        assert sampler(isa, threads).target_tokens(x[:count], greedy) == expected


def test_a_row_of_logits_may_have_many_targets():
    rows = [ScoredRow(i, row.request, row.path) for i, row in enumerate(varied_rows(40, 320))]
    logits = randn(1, 320)
    expected = [sampler(SETS[0]).target_tokens(logits, [row._replace(row=0)])[0] for row in rows]
    assert sampler(SETS[0], 2).target_tokens(logits.expand(40, -1), rows) == expected
    assert sampler(SETS[0], 2).target_tokens(logits, [row._replace(row=0) for row in rows]) == expected


quarters = st.lists(st.integers(-6, 6).map(lambda n: n / 4), min_size=1, max_size=40)


lists_and_cuts = given(
    logits=quarters,
    top_k=st.integers(0, 42),
    top_p=st.one_of(st.just(1.0), st.floats(0.01, 0.9999)),
    min_p=st.one_of(st.just(0.0), st.floats(0.1, 1.0)),
    isa=st.sampled_from(SETS),
)


def check_what_is_sampled(logits, top_k, top_p, min_p, isa):
    params = SamplingParams(temperature=1.0, top_k=top_k, top_p=top_p, min_p=min_p)
    thresholds = [cutoff(logits, params, slack) for slack in (-1e-6, 1e-6)]
    strict, generous = ({t for t, value in enumerate(logits) if value >= threshold - 1e-9} for threshold in thresholds)
    # each token that stays has a probability of at least e^-3 / 40: 12 000 draws miss one once in 10^6 lists
    request = admitted(len(logits), prompt=[0], temperature=1.0, top_k=top_k, top_p=top_p, min_p=min_p)
    rows = [ScoredRow(0, request, range(i)) for i in range(12_000)]  # type: ignore[arg-type]
    sampled = set(sampler(isa).target_tokens(torch.tensor([logits]), rows))
    assert strict <= sampled <= generous


@settings(max_examples=50)
@lists_and_cuts
def test_exactly_what_a_full_sort_keeps_is_sampled(logits, top_k, top_p, min_p, isa):
    check_what_is_sampled(logits, top_k, top_p, min_p, isa)


@pytest.mark.sweep
@many
@lists_and_cuts
def test_of_very_many_lists_exactly_what_a_full_sort_keeps_is_sampled(logits, top_k, top_p, min_p, isa):
    check_what_is_sampled(logits, top_k, top_p, min_p, isa)


@lru_cache(maxsize=1)
def many_draws(cut: tuple[tuple[str, Any], ...]) -> list[ScoredRow]:
    """One list for all tests of a cut, which run one after the other."""
    return [ScoredRow(0, admitted(VOCAB, seed=i, temperature=0.9, **dict(cut)), ()) for i in range(20_000)]


@covering(("cut", "kind"), ("isa", "kind"), cut=CUTOFFS, kind=["distinct", "tied"], isa=WHOLE_SETS)
def test_sampled_tokens_have_the_target_distribution(cut, kind, isa):
    """Chi-square over the tokens that a full sort keeps; no others are drawn."""
    x = randn(VOCAB, seed=5, scale=2.0)
    x = x if kind == "distinct" else (x * 2).round() / 2
    rows = many_draws(tuple(cut.items()))
    counts = torch.bincount(torch.tensor(sampler(isa, 2).target_tokens(x[None], rows)), minlength=VOCAB).double()
    scaled = (x / 0.9).double()
    threshold = cutoff((x / 0.9).tolist(), SamplingParams(**cut), 0.0) - 1e-4
    expected = torch.softmax(scaled.masked_fill(scaled < threshold, -math.inf), -1) * len(rows)
    assert counts[expected == 0].sum() == 0
    common = expected >= 5
    rare = expected[~common].sum(), counts[~common].sum()
    freedom = int(common.sum()) - 1 + int(rare[0] >= 5)
    chi_square = ((counts - expected)[common] ** 2 / expected[common]).sum().item()
    chi_square += float((rare[1] - rare[0]) ** 2 / rare[0]) if rare[0] >= 5 else 0.0
    # far beyond the 99.9999 % point of chi-square
    assert chi_square <= freedom + 5 * math.sqrt(2 * freedom) + 15


@each_set
@pytest.mark.parametrize("shift", [-1e-3, 1e-3])
def test_a_token_with_rare_noise_wins_and_loses_by_a_thousandth(isa, shift):
    """The largest noise of a million tokens against a token with a high logit and little noise."""
    size = 1_000_000
    noise = torch.empty(size)
    sampler(isa).native.gumbel_noise(4, 0, noise)
    rare, unlucky = int(noise.argmax()), int(noise[:1000].argmin())
    logits = torch.full((1, size), -100.0)
    logits[0, unlucky], logits[0, rare] = 0.0, noise[unlucky] - noise[rare] + shift
    assert noise[rare] - noise[unlucky] > 14
    row = ScoredRow(0, admitted(size, seed=4, prompt=[0], temperature=1.0), ())
    for threads in (1, 2):
        assert sampler(isa, threads).target_tokens(logits, [row]) == [rare if shift > 0 else unlucky]
