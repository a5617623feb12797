"""Top-k, top-p and min-p against a plain full sort, ties included."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specserve.sampling.cutoffs import apply_cutoffs, has_cutoff
from specserve.types import SamplingParams

logits_lists = st.lists(st.integers(-40, 40).map(lambda n: n / 4), min_size=1, max_size=300)
cutoffs = st.fixed_dictionaries(
    {
        "top_k": st.one_of(st.just(0), st.just(-1), st.integers(1, 320)),
        "top_p": st.one_of(st.just(1.0), st.floats(0.01, 0.999)),
        "min_p": st.one_of(st.just(0.0), st.floats(0.001, 1.0)),
    }
)


def kept(logits, **params):
    row = torch.tensor(logits, dtype=torch.float32)
    left = apply_cutoffs(row.clone(), SamplingParams(**params))
    survivors = (left > -math.inf).nonzero()[:, 0].tolist()
    assert torch.equal(left[survivors], row[survivors]), "what is kept keeps its value"
    return set(survivors)


def least_kept(logits, *, top_k=0, top_p=1.0, min_p=0.0, slack=0.0):
    """The smallest logit that stays, by sorting everything; `slack` moves the nucleus's and min-p's borders."""
    ranked = sorted(logits, reverse=True)
    best = ranked[:top_k] if top_k > 0 else ranked
    least = best[-1]
    if top_p < 1.0:
        weights = [math.exp(x - best[0]) for x in best]
        running, total = 0.0, math.fsum(weights)
        for x, weight in zip(best, weights, strict=True):
            least = x
            running += weight / total
            if running >= top_p + slack:
                break
    if min_p > 0.0:
        least = max(least, ranked[0] + math.log(min_p) + slack)
    return least


@settings(max_examples=300, deadline=None)
@given(logits=logits_lists, params=cutoffs)
def test_what_is_kept_is_what_a_full_sort_keeps(logits, params):
    left = kept(logits, **params)
    # float32 sums may fall on either side of a border that the exact sum meets
    generous = {t for t, x in enumerate(logits) if x >= least_kept(logits, **params, slack=1e-5) - 1e-9}
    strict = {t for t, x in enumerate(logits) if x >= least_kept(logits, **params, slack=-1e-5) - 1e-9}
    small, large = sorted((generous, strict), key=len)
    assert small <= left <= large
    assert logits.index(max(logits)) in left


@pytest.mark.parametrize(("params", "expected"), [
    ({"top_k": 1}, {0, 1}),
    ({"top_k": 2}, {0, 1}),
    ({"top_k": 3}, {0, 1, 2, 3, 4}),
    ({"top_p": 0.1}, {0, 1}),
    ({"min_p": 1.0}, {0, 1}),
    ({"top_k": 6}, {0, 1, 2, 3, 4, 5}),
    ({"top_k": 99}, {0, 1, 2, 3, 4, 5}),
    ({"top_k": -1}, {0, 1, 2, 3, 4, 5}),
])  # fmt: skip
def test_tokens_that_tie_with_the_last_one_kept_stay(params, expected):
    assert kept([4.0, 4.0, 2.0, 2.0, 2.0, 0.0], **params) == expected


def test_top_p_counts_only_what_top_k_left():
    logits = [math.log(p) for p in (0.4, 0.3, 0.2, 0.1)]
    assert kept(logits, top_p=0.65) == {0, 1}
    assert kept(logits, top_k=2, top_p=0.55) == {0}  # 0.4 / 0.7 reaches it
    assert kept(logits, top_k=2, top_p=0.6) == {0, 1}


def test_min_p_is_relative_to_the_best_token():
    logits = [math.log(p) for p in (0.5, 0.26, 0.24)]
    assert kept(logits, min_p=0.5) == {0, 1}
    assert kept([x + 50 for x in logits], min_p=0.5) == {0, 1}


@pytest.mark.parametrize("vocab_size", [320, 8192, 50_257])
@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.999, 0.9999999])
@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0, 8.0])
def test_a_nucleus_of_any_width_is_found_without_a_full_sort(vocab_size, top_p, scale):
    logits = torch.randn(vocab_size, generator=torch.Generator().manual_seed(vocab_size)) * scale
    left = apply_cutoffs(logits.clone(), SamplingParams(top_p=top_p)) > -math.inf
    probabilities = torch.softmax(logits.double(), -1)
    mass = probabilities[left].sum().item()
    assert mass >= top_p - 1e-5
    assert probabilities[left].min() >= (probabilities[~left].max() if not left.all() else 0)
    smallest = probabilities[left].min()
    assert mass - (probabilities == smallest).sum().item() * smallest.item() <= top_p + 1e-5


def test_minus_infinity_never_comes_back():
    logits = [0.0, -math.inf, 1.0, -math.inf]
    for params in ({"top_k": 3}, {"top_p": 0.99}, {"min_p": 0.001}, {"top_k": 4, "top_p": 0.5, "min_p": 0.1}):
        assert kept(logits, **params) <= {0, 2}


def test_neutral_values_cut_nothing():
    assert not has_cutoff(SamplingParams())
    assert not has_cutoff(SamplingParams(top_k=-1))
    assert all(has_cutoff(SamplingParams(**p)) for p in ({"top_k": 1}, {"top_p": 0.99}, {"min_p": 0.01}))
