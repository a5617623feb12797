"""Every sampling field at its ends, alone and combined: the native sampler decides as torch's.

Tokens are compared through a margin: the native one's score, by torch's arithmetic, is within 1e-5 of the best score,
relative to it, since logarithms differ in their last bits. Greedy tokens are equal. The native sampler
counts NaN as -inf, so torch is spans for the logits without it.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from native_cases import each_set
from sampling_fields import KINDS, REPORTED, VOCABS, is_admitted, logits_of, request_of, values_of
from sampling_reference import sampler

from specserve.faults import RequestFault
from specserve.protocols import ScoredRow
from specserve.sampling.sampler import TorchSampler
from specserve.sampling.scores import GREEDY_BELOW, scores
from specserve.types import SamplingParams

each_vocab = pytest.mark.parametrize("vocab_size", VOCABS)
few = settings(max_examples=150, deadline=None, derandomize=True)


def without_nan(logits):
    return logits.masked_fill(logits.isnan(), -math.inf)


def assert_decided_as_torch_does(isa, logits, rows, threads=1):
    tokens = decided(sampler(isa, threads), logits, rows)
    clean = without_nan(logits)
    expected = decided(TorchSampler(), clean, rows)
    assert [token is None for token in tokens] == [token is None for token in expected]
    left = [i for i, token in enumerate(tokens) if token is not None]
    for i, score in zip(left, scores(clean, [rows[i] for i in left]), strict=True):
        token, best, row = tokens[i], expected[i], rows[i]
        noisy = row.request.params.temperature >= GREEDY_BELOW
        near = token == best or (noisy and is_near_best(score, token))
        assert near, (row.request.params, row.path, token, best)


def decided(chosen_by, logits, rows):
    """The token of every row; None where its edits left none, which ends its request."""
    try:
        return chosen_by.target_tokens(logits, rows)
    except RequestFault:
        if len(rows) == 1:
            return [None]
    return [token for row in rows for token in decided(chosen_by, logits, [row])]


def is_near_best(score, token):
    best = score.max().item()
    return score[token].item() >= best - 1e-5 * max(1.0, abs(best))


def test_every_field_is_tested():
    assert {*values_of(3), *REPORTED} == {*SamplingParams.__struct_fields__}
    for vocab_size in VOCABS:
        for field, values in values_of(vocab_size).items():
            assert any(is_admitted(vocab_size, {field: value}) for value in values[1:]) or vocab_size < 3, field


@each_set
@each_vocab
def test_each_field_alone_sampled_and_greedy(isa, vocab_size):
    requests = [
        request_of(vocab_size, {"temperature": temperature, field: value}, (0, 5, 5), generated=(7, 7))
        for field, values in values_of(vocab_size).items()
        for value in values
        for temperature in (1.0, 0.0)
        if is_admitted(vocab_size, {"max_tokens": 30, field: value})
    ]
    rows = [ScoredRow(0, request, (5 % vocab_size,) * (i % 4)) for i, request in enumerate(requests)]
    for kind in KINDS:
        assert_decided_as_torch_does(isa, logits_of(kind, vocab_size)[None], rows, threads=2)


@st.composite
def combined(draw):
    vocab_size = draw(st.sampled_from(VOCABS))
    values = values_of(vocab_size)
    fields = draw(st.lists(st.sampled_from(sorted(values)), unique=True, max_size=8))
    params: dict[str, Any] = {"max_tokens": 30} | {name: draw(st.sampled_from(values[name])) for name in fields}
    some = st.lists(st.sampled_from((0, 1, vocab_size // 2, vocab_size - 1)), max_size=6)
    request = request_of(vocab_size, params, [0, *draw(some)], draw(some)) if is_admitted(vocab_size, params) else None
    return vocab_size, draw(st.sampled_from(KINDS)), request, tuple(t % vocab_size for t in draw(some))


@each_set
@few
@given(case=combined())
def test_fields_combined_and_along_a_path(isa, case):
    vocab_size, kind, request, path = case
    assume(request is not None)
    assert_decided_as_torch_does(isa, logits_of(kind, vocab_size)[None], [ScoredRow(0, request, path)])


@each_set
@each_vocab
def test_edits_of_one_token_apply_in_order(isa, vocab_size):
    """A token that is penalised, allowed, biased, and forbidden as a stop token and as a bad word."""
    token = vocab_size - 1
    edits = {"repetition_penalty": 1.7, "presence_penalty": 2.0, "frequency_penalty": -2.0, "logit_bias": {token: 1.25}}
    forbidden = {"bad_words": ((token, token), (token,)), "stop_token_ids": (token,), "min_tokens": 9}
    requests = [
        request_of(vocab_size, params, prompt=(token,), generated=(token,) * 3)
        for params in (edits, edits | {"allowed_token_ids": (token, token, 0)}, edits | forbidden)
    ]
    rows = [ScoredRow(0, request, (token,) * length) for request in requests for length in range(8)]
    for kind in KINDS:
        assert_decided_as_torch_does(isa, logits_of(kind, vocab_size)[None], rows)


@each_set
@each_vocab
def test_log_probabilities_are_torchs(isa, vocab_size):
    logits = torch.stack([logits_of(kind, vocab_size) for kind in KINDS for _ in range(4)])
    tokens = [(0, vocab_size - 1, vocab_size // 2, 1 % vocab_size)[i % 4] for i in range(len(logits))]
    counts = [(0, 1, 20, 7)[(i + i // 4) % 4] for i in range(len(logits))]
    native = sampler(isa).token_logprobs(logits, tokens, counts)
    for got, expected in zip(native, TorchSampler().token_logprobs(without_nan(logits), tokens, counts), strict=True):
        assert got.logprob == pytest.approx(expected.logprob, rel=1e-5, abs=1e-5, nan_ok=True)
        assert got.top_logprobs == pytest.approx(expected.top_logprobs, rel=1e-5, abs=1e-5, nan_ok=True)
        assert [t for t, _ in possible(got)] == [t for t, _ in possible(expected)]


def possible(row):
    """The best tokens with a probability above 0: the others have no order."""
    return [(token, value) for token, value in zip(row.top_ids, row.top_logprobs, strict=True) if value > -math.inf]


@each_vocab
def test_the_margin_tells_the_best_token_from_the_second(vocab_size):
    score = scores(logits_of("plain", vocab_size)[None], [ScoredRow(0, request_of(vocab_size, {}), ())])[0]
    order = score.argsort(descending=True).tolist()
    assert [is_near_best(score, token) for token in order] == [True] + [False] * (vocab_size - 1)
