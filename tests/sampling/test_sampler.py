"""Target tokens and log-probabilities: rows asked together or alone, ties to the lower id, raw values."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sampled_rows import CUTOFFS, PENALTIES, admitted, random_logits, varied_rows

from specserve.protocols import ScoredRow
from specserve.sampling.sampler import TorchSampler, is_greedy
from specserve.types import SamplingParams
from specserve_workbench.testing.reference import reference_token

sampler = TorchSampler()
VOCABS = (320, 8192, 50_257)


@pytest.fixture(autouse=True)
def one_thread_afterwards():
    yield
    torch.set_num_threads(1)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("vocab_size", VOCABS)
def test_rows_asked_together_get_the_tokens_they_get_alone(vocab_size, threads):
    torch.set_num_threads(threads)
    logits, rows = random_logits(40, vocab_size), varied_rows(40, vocab_size)
    alone = [sampler.target_tokens(logits, [row])[0] for row in rows]
    for count in (*range(1, 41), 33) if vocab_size < 50_000 else (1, 2, 3, 31, 32, 33, 40):
        assert sampler.target_tokens(logits, rows[:count]) == alone[:count], count
        assert sampler.target_tokens(logits, rows[::-1][:count]) == alone[::-1][:count], count


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("vocab_size", VOCABS)
def test_noisy_scores_are_equal_bit_for_bit_together_and_alone(vocab_size, threads, monkeypatch):
    seen = []
    monkeypatch.setattr(sampler, "argmax_tokens", lambda x: seen.append(x) or [0] * len(x))
    logits, rows = random_logits(40, vocab_size), varied_rows(40, vocab_size)
    sampler.target_tokens(logits, rows)
    together = torch.cat(seen)
    torch.set_num_threads(threads)
    for count in (1, 3, 17):
        seen.clear()
        for begin in range(0, 40, count):
            sampler.target_tokens(logits, rows[begin : begin + count])
        assert torch.equal(torch.cat(seen), together), count


def test_target_tokens_leaves_the_logits_as_they_were():
    logits = random_logits(12, 320)
    before = logits.clone()
    sampler.target_tokens(logits, varied_rows(12, 320))
    assert torch.equal(logits, before)


@pytest.mark.parametrize("cutoff", CUTOFFS, ids=str)
def test_sampled_tokens_are_those_of_the_plain_python_reference(cutoff):
    logits = random_logits(20, 320)
    requests = [admitted(seed=7, temperature=0.8, generated=[4] * i, **cutoff) for i in range(20)]
    rows = [ScoredRow(i, request, (9,) * (i % 4)) for i, request in enumerate(requests)]
    expected = [reference_token(logits[i].tolist(), SamplingParams(temperature=0.8, seed=7, **cutoff), i + i % 4)
                for i in range(20)]  # fmt: skip
    assert sampler.target_tokens(logits, rows) == expected


def test_a_token_at_the_same_index_is_the_same_as_guess_and_as_commitment():
    logits = random_logits(1, 320).expand(2, -1)
    committed = ScoredRow(0, admitted(seed=3, generated=[5, 6], temperature=1.0), ())
    guessed = ScoredRow(1, admitted(seed=3, generated=[5], temperature=1.0), (6,))
    assert len(set(sampler.target_tokens(logits, [committed, guessed]))) == 1


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("vocab_size", [1, 2, 63, *VOCABS])
def test_of_equal_maxima_the_lowest_id_wins(vocab_size, threads):
    torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(0, 3, (40, vocab_size), generator=generator).float()
    x[0] = 0.0
    assert sampler.argmax_tokens(x) == [row.index(max(row)) for row in x.tolist()]


def test_plain_greedy_is_temperature_0_without_processors():
    assert is_greedy(admitted(temperature=0.0))
    assert not is_greedy(admitted(temperature=0.0, **PENALTIES))
    assert not is_greedy(admitted(temperature=0.1))


@settings(max_examples=100, deadline=None)
@given(values=st.lists(st.integers(-3, 3), min_size=2, max_size=40), count=st.integers(0, 50), data=st.data())
def test_logprobs_are_ordered_by_value_and_then_by_the_lower_id(values, count, data):
    token = data.draw(st.integers(0, len(values) - 1))
    found = sampler.token_logprobs(torch.tensor([values], dtype=torch.float32), [token], [count])[0]
    total = math.log(math.fsum(math.exp(v) for v in values))
    order = sorted(range(len(values)), key=lambda t: (-values[t], t))[:count]
    assert found.top_ids == tuple(order)
    assert found.top_logprobs == pytest.approx([values[t] - total for t in order], abs=1e-5)
    assert (found.token_id, found.logprob) == (token, pytest.approx(values[token] - total, abs=1e-5))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("vocab_size", VOCABS)
def test_logprobs_of_a_row_do_not_depend_on_the_rows_asked_with_it(vocab_size, threads):
    torch.set_num_threads(threads)
    logits = random_logits(40, vocab_size)
    tokens, counts = list(range(40)), [i % 4 for i in range(40)]
    alone = [sampler.token_logprobs(logits[i : i + 1], [tokens[i]], [counts[i]])[0] for i in range(40)]
    for count in (1, 2, 3, 5, 16, 31, 40):
        assert sampler.token_logprobs(logits[:count], tokens[:count], counts[:count]) == alone[:count]


def test_a_tie_with_the_last_top_token_goes_to_the_lower_id():
    logits = torch.zeros(1, 50_257)
    logits[0, 40_000] = 1.0
    assert sampler.token_logprobs(logits, [7], [3])[0].top_ids == (40_000, 0, 1)
