"""Every processor against a naive recomputation, and along a draft's path against the same tokens committed."""

from __future__ import annotations

import math
from array import array

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specserve.batch.request import Request
from specserve.sampling.edits import TorchRow
from specserve.sampling.processors import (
    BadWordsProcessor,
    BiasProcessor,
    MinTokensProcessor,
    PenaltiesProcessor,
)
from specserve.types import GenerateRequest, SamplingParams

VOCAB = 12
EOS = (10, 11)
PROCESSORS = {
    "penalties": PenaltiesProcessor(),
    "bias": BiasProcessor(),
    "bad words": BadWordsProcessor(),
    "min tokens": MinTokensProcessor(EOS),
}
token = st.integers(0, VOCAB - 1)
some = st.lists(token, max_size=8)
parameters = st.fixed_dictionaries(
    {
        "repetition_penalty": st.sampled_from((1.0, 0.5, 1.3, 7.0)),
        "presence_penalty": st.sampled_from((0.0, 0.5, -1.25)),
        "frequency_penalty": st.sampled_from((0.0, 0.75, -2.0)),
        "logit_bias": st.one_of(st.none(), st.dictionaries(token, st.sampled_from((-100.0, 0.5, 3.0)), max_size=3)),
        "allowed_token_ids": st.one_of(st.none(), st.lists(token, min_size=1, max_size=6).map(tuple)),
        "bad_words": st.lists(st.lists(token, min_size=1, max_size=3).map(tuple), max_size=4).map(tuple),
        "min_tokens": st.integers(0, 10),
        "stop_token_ids": st.lists(token, max_size=2).map(tuple),
        "max_tokens": st.just(30),
    }
)


def admitted(prompt, generated, params):
    wire = GenerateRequest(request_id="r", prompt_token_ids=tuple(prompt), params=params)
    request = Request.admit(wire, seed=0, arrival=0.0, order=0, max_len=99)
    request.tokens += generated
    return request


def raw_logits():
    return torch.randn(VOCAB, generator=torch.Generator().manual_seed(1)) * 3


def naive(name, logits, prompt, generated, params):
    """The definitions, one token at a time, over all that was generated."""
    out = logits.tolist()
    text = [*prompt, *generated]
    for t in range(VOCAB):
        if name == "penalties":
            if t in text:
                out[t] = out[t] / params.repetition_penalty if out[t] > 0 else out[t] * params.repetition_penalty
            out[t] -= params.frequency_penalty * generated.count(t) + params.presence_penalty * (t in generated)
        if name == "bias":
            out[t] += (params.logit_bias or {}).get(t, 0.0)
            if params.allowed_token_ids is not None and t not in params.allowed_token_ids:
                out[t] = -math.inf
        if name == "bad words" and any(tuple([*text, t][-len(word) :]) == word for word in params.bad_words):
            out[t] = -math.inf
        if name == "min tokens" and len(generated) < params.min_tokens and t in (*EOS, *params.stop_token_ids):
            out[t] = -math.inf
    return out


def apply(state, path=()):
    return raw_logits() if state is None else state.apply(raw_logits(), path)


@pytest.mark.parametrize("name", PROCESSORS)
@settings(max_examples=150, deadline=None)
@given(prompt=st.lists(token, min_size=1, max_size=8), generated=some, params=parameters)
def test_a_processor_does_what_its_definition_says(name, prompt, generated, params):
    params = SamplingParams(**params)
    state = PROCESSORS[name].start(admitted(prompt, [], params), VOCAB)
    if state is not None:
        state.commit(generated)
    expected = naive(name, raw_logits(), prompt, generated, params)
    assert apply(state).tolist() == pytest.approx(expected, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("name", PROCESSORS)
@settings(max_examples=150, deadline=None)
@given(prompt=st.lists(token, min_size=1, max_size=8), generated=some, path=some, params=parameters)
def test_a_guessed_path_counts_bit_for_bit_as_if_it_were_committed(name, prompt, generated, path, params):
    request = admitted(prompt, [], SamplingParams(**params))
    forked, committed = (PROCESSORS[name].start(request, VOCAB) for _ in range(2))
    if forked is None:
        return
    forked.commit(generated)
    before = apply(forked)
    ahead = apply(forked, tuple(path))
    committed.commit([*generated, *path])
    assert torch.equal(ahead, apply(committed))
    assert torch.equal(apply(forked), before), "looking ahead must leave no trace"


@pytest.mark.parametrize("name", PROCESSORS)
@given(generated=some, params=parameters)
def test_a_processor_that_starts_late_knows_what_was_generated(name, generated, params):
    params = SamplingParams(**params)
    late = PROCESSORS[name].start(admitted([1, 2], generated, params), VOCAB)
    early = PROCESSORS[name].start(admitted([1, 2], [], params), VOCAB)
    if early is not None:
        early.commit(generated)
    assert torch.equal(apply(late), apply(early))


@pytest.mark.parametrize("name", PROCESSORS)
def test_neutral_parameters_need_no_processor(name):
    assert PROCESSORS[name].start(admitted([1], [], SamplingParams()), VOCAB) is None


class Said:
    """Edits that only remember what they were."""

    def __init__(self):
        self.edits = []

    def __getattr__(self, name):
        return lambda *numbers: self.edits.append((name, *numbers))


@pytest.mark.parametrize(
    ("name", "params", "expected"),
    [
        ("bias", SamplingParams(allowed_token_ids=(2, 1, 2)), ["keep_only"]),
        ("bias", SamplingParams(allowed_token_ids=(2,), logit_bias={}), ["keep_only"]),
        ("bias", SamplingParams(logit_bias={3: 0.5}), ["shift"]),
        ("penalties", SamplingParams(presence_penalty=1.0), []),
        ("penalties", SamplingParams(repetition_penalty=1.5), ["penalize"]),
        ("min tokens", SamplingParams(min_tokens=1), ["forbid"]),
        ("bad words", SamplingParams(bad_words=((3, 4),)), []),
    ],
)
def test_what_would_change_nothing_is_not_said(name, params, expected):
    said = Said()
    PROCESSORS[name].start(admitted([9, 9], [], params), VOCAB).edit(said, ())
    assert [name for name, *_ in said.edits] == expected
    assert all(len(numbers) for _, *lists in said.edits for numbers in lists if isinstance(numbers, array))


def test_an_edit_in_numbers_of_another_type_is_refused_not_read_amiss():
    row = TorchRow(torch.zeros(VOCAB))
    for ids, values in ((array("i", [1, 2]), array("f", [1, 2])), (array("q", [1]), array("d", [1]))):
        with pytest.raises(
            ValueError, match=r"an edit takes ids as array\('q'\) and values as array\('f'\); got format"
        ):
            row.shift(ids, values)
    row.shift(array("l", [1]), array("f", [0.5]))
    assert row.logits.tolist() == [0.0, 0.5, *[0.0] * (VOCAB - 2)]


def test_an_edit_has_one_value_per_token():
    """Fewer would be read out of what lies behind them, or stand for all."""
    row = TorchRow(torch.zeros(VOCAB))
    for values in ([], [1.0], [1.0, 2.0, 3.0]):
        for edit in (row.shift, lambda ids, numbers: row.penalize(ids, numbers, 1.0, 0.5, 0.0)):
            with pytest.raises(ValueError, match=f"one value per token; got {len(values)} values for 2 tokens"):
                edit(array("q", [1, 2]), array("f", values))
    assert row.logits.tolist() == [0.0] * VOCAB


@pytest.mark.parametrize("token", [-1, VOCAB, -(2**63), 2**63 - 1])
def test_an_edit_of_a_token_that_is_not_there_is_refused(token):
    row = TorchRow(torch.zeros(VOCAB))
    for edit in (row.forbid, row.keep_only, lambda ids: row.shift(ids, array("f", [1, 2]))):
        with pytest.raises(ValueError, match=rf"an edit's tokens must be in \[0, {VOCAB}\); got {token}"):
            edit(array("q", [3, token]))
    assert row.logits.tolist() == [0.0] * VOCAB


def test_repetition_counts_the_prompt_and_the_other_penalties_do_not():
    one = torch.ones(VOCAB)
    repetition = SamplingParams(repetition_penalty=2.0)
    presence = SamplingParams(presence_penalty=1.0, frequency_penalty=1.0)
    assert PROCESSORS["penalties"].start(admitted([3], [], repetition), VOCAB).apply(one.clone(), ())[3] == 0.5
    assert PROCESSORS["penalties"].start(admitted([3], [], presence), VOCAB).apply(one.clone(), ())[3] == 1.0


def test_a_bad_word_may_begin_in_the_prompt_and_go_on_in_the_guesses():
    params = SamplingParams(bad_words=((3, 4, 5),))
    state = PROCESSORS["bad words"].start(admitted([9, 3], [], params), VOCAB)
    assert state.apply(torch.zeros(VOCAB), ())[5] == 0.0
    assert state.apply(torch.zeros(VOCAB), (4,))[5] == -math.inf
    assert state.apply(torch.zeros(VOCAB), (4, 4))[5] == 0.0
