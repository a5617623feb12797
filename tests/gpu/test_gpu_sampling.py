"""On the device: the sampler chooses what it chooses on the CPU."""

from __future__ import annotations

import warnings

import pytest
import torch
from sizes import DRY

from specserve.sampling.noise import gumbel_noise, noise_bits
from specserve.sampling.sampler import TorchSampler
from specserve.sampling.seeds import row_key

pytestmark = pytest.mark.gpu
CUDA, CPU = torch.device("cuda"), torch.device("cpu")
VOCABS = [320] if DRY else [320, 8192, 50_257, 128_256]
NUM_ROWS = 40
KEYS = [row_key(seed, index) for seed in (0, 7, 2**63 - 1) for index in (0, 1, 4096)]


@pytest.fixture
def rows():
    import sampled_rows

    return sampled_rows


@pytest.fixture
def sampler():
    from specserve_cuda.kernels.kernel_set import CudaKernels

    return CudaKernels().sampler


@pytest.mark.parametrize("width", [64, 128_256])
def test_the_integers_of_the_noise_are_the_same_bit_for_bit(width):
    assert torch.equal(noise_bits(KEYS, width, CUDA).cpu(), noise_bits(KEYS, width, CPU))


def test_the_noise_differs_in_its_last_bits_at_most():
    ours, theirs = gumbel_noise(KEYS, 8192, CUDA).cpu(), gumbel_noise(KEYS, 8192, CPU)
    # the outer logarithm adds an absolute error where its argument is near 1
    torch.testing.assert_close(ours, theirs, rtol=2.0**-21, atol=2.0**-21)


@pytest.mark.parametrize("vocab_size", VOCABS)
def test_penalties_and_cutoffs_choose_the_tokens_of_the_cpu(rows, sampler, vocab_size):
    """Two tokens whose scores differ by the last bit of a logarithm may change places: one row in 2^20 or so."""
    logits, asked = rows.random_logits(NUM_ROWS, vocab_size), rows.varied_rows(NUM_ROWS, vocab_size)
    assert sampler.target_tokens(logits.to(CUDA), asked) == TorchSampler().target_tokens(logits, asked)


def test_all_rows_of_a_level_wait_for_the_device_once(rows, sampler):
    logits, asked = rows.random_logits(NUM_ROWS, 8192).to(CUDA), rows.varied_rows(NUM_ROWS, 8192)
    sampler.target_tokens(logits, asked)  # compiles
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            sampler.target_tokens(logits, asked)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    waits = [str(w.message) for w in caught if "synchronizing" in str(w.message)]
    assert len(waits) == 1, waits


@pytest.mark.parametrize("vocab_size", VOCABS)
def test_rows_asked_together_get_the_tokens_they_get_alone(rows, sampler, vocab_size):
    logits = rows.random_logits(NUM_ROWS, vocab_size).to(CUDA)
    asked = rows.varied_rows(NUM_ROWS, vocab_size)
    alone = [sampler.target_tokens(logits, [row])[0] for row in asked]
    for count in (1, 2, 31, 33, NUM_ROWS):
        assert sampler.target_tokens(logits, asked[:count]) == alone[:count], count
        assert sampler.target_tokens(logits, asked[::-1][:count]) == alone[::-1][:count], count


def test_log_probabilities_are_those_of_the_cpu(rows, sampler):
    logits = rows.random_logits(5, 8192)
    ours, theirs = (sampler.token_logprobs(x, [3] * 5, [4] * 5) for x in (logits.to(CUDA), logits))
    for one, other in zip(ours, theirs, strict=True):
        assert (one.token_id, one.top_ids) == (other.token_id, other.top_ids)
        assert one.logprob == pytest.approx(other.logprob, abs=1e-5)
