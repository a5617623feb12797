"""The noise is a pure function of (seed, index, token), equal to its published definition, and standard Gumbel."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specserve.sampling.noise import gumbel_noise
from specserve.sampling.seeds import choice_seed, mix64, row_key
from specserve_workbench.testing.reference import finalise, gumbel

CPU = torch.device("cpu")
EULER = 0.57721566490153286
seeds = st.integers(-(2**63), 2**64 - 1)


@pytest.fixture(autouse=True)
def one_thread_afterwards():
    yield
    torch.set_num_threads(1)


def noise(seed, index, vocab_size):
    return gumbel_noise([row_key(seed, index)], vocab_size, CPU)[0]


def allowed_error(g):
    """1e-5 relative. Far below zero w is near 1, where float32 leaves 1 - w few digits; such noise never wins."""
    w = -math.expm1(-math.exp(-g))
    slope = 1 / max(1 - w, 2**-24) / -math.log1p(-w)
    return 1e-5 * max(1.0, abs(g)) + (slope * 2**-24 if g < -1 else 0.0)


@settings(max_examples=40, deadline=None)
@given(seed=seeds, index=st.integers(0, 10**6))
def test_noise_equals_the_plain_python_definition(seed, index):
    for token, got in enumerate(noise(seed, index, 200).tolist()):
        expected = gumbel(seed, index, token)
        assert abs(got - expected) <= allowed_error(expected), token


def test_noise_equals_the_definition_in_the_last_columns_of_a_large_vocabulary():
    row = noise(3, 4, 151_936)
    for token in (0, 63, 64, 50_256, 151_935):
        assert row[token].item() == pytest.approx(gumbel(3, 4, token), rel=1e-5)


@pytest.mark.parametrize("vocab_size", [1, 63, 65, 320, 8192, 50_257])
def test_noise_of_a_token_does_not_depend_on_the_vocabulary_size(vocab_size):
    assert torch.equal(noise(5, 9, vocab_size), noise(5, 9, 60_001)[:vocab_size])


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@pytest.mark.parametrize("vocab_size", [320, 8192, 50_257])
def test_noise_of_a_row_does_not_depend_on_the_rows_asked_with_it(vocab_size, threads):
    keys = [row_key(11, index) for index in range(33)]
    torch.set_num_threads(1)
    alone = [gumbel_noise([key], vocab_size, CPU)[0] for key in keys]
    torch.set_num_threads(threads)
    for count in (1, 2, 3, 7, 32, 33):
        together = gumbel_noise(keys[:count], vocab_size, CPU)
        assert all(torch.equal(together[i], alone[i]) for i in range(count)), count


def test_noise_differs_by_seed_index_and_token():
    values = {noise(seed, index, 50)[token].item() for seed in range(4) for index in range(4) for token in range(50)}
    assert len(values) == 800


def test_noise_is_always_finite():
    extremes = gumbel_noise([row_key(seed, 0) for seed in range(200)], 8192, CPU)
    assert torch.isfinite(extremes).all()


def test_mean_and_variance_are_those_of_a_standard_gumbel():
    sample = gumbel_noise([row_key(1, i) for i in range(100)], 10_000, CPU).double()
    assert sample.mean().item() == pytest.approx(EULER, abs=5 * math.pi / math.sqrt(6) / 1000)
    assert sample.var().item() == pytest.approx(math.pi**2 / 6, rel=0.01)


@pytest.mark.parametrize("along", ["token", "index", "seed"])
def test_noise_is_uniform_through_its_distribution_function(along):
    if along == "token":
        sample = noise(77, 0, 64_000)
    else:
        keys = [row_key(i, 0) if along == "seed" else row_key(77, i) for i in range(64_000)]
        sample = gumbel_noise(keys, 1, CPU)[:, 0]
    uniform = torch.exp(-torch.exp(-sample.double()))
    counts = torch.histc(uniform, 64, 0.0, 1.0)
    # the 99.99 % point of chi-square with 63 degrees of freedom is 112
    assert ((counts - 1000) ** 2 / 1000).sum().item() < 112


def test_neighbouring_tokens_indices_and_seeds_are_uncorrelated():
    grid = gumbel_noise([row_key(5, i) for i in range(300)], 301, CPU).double()
    others = gumbel_noise([row_key(6, i) for i in range(300)], 301, CPU).double()
    for a, b in ((grid[:, 1:], grid[:, :-1]), (grid[1:], grid[:-1]), (grid, others)):
        correlation = torch.corrcoef(torch.stack((a.flatten(), b.flatten())))[0, 1].item()
        assert abs(correlation) < 5 / math.sqrt(a.numel())


@given(seed=seeds)
def test_the_first_choice_of_the_first_prompt_has_the_seed_itself(seed):
    assert choice_seed(seed, 0, 0) == seed
    assert choice_seed(None, 3, 4) is None
    derived = {choice_seed(seed, prompt, choice) for prompt in range(5) for choice in range(5)}
    assert len(derived) == 25


@given(x=st.integers(-(2**80), 2**80))
def test_the_mixer_is_splitmix64s_and_reads_the_low_64_bits(x):
    assert mix64(x) == finalise(x) == mix64(x + 2**64)
    assert 0 <= mix64(x) < 2**64
