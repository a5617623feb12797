"""On the device: the bit rule, losslessness under noisy drafts, and what a step costs."""

from __future__ import annotations

import time

import pytest
import torch
from msgspec.structs import replace

from specserve.testing.drafters import NoisyDrafter, OracleDrafter
from specserve.testing.engines import accepted, assert_lossless, make_engine, run, run_requests
from specserve.testing.requests import TOY_VOCAB, toy_request, varied_requests

pytestmark = pytest.mark.gpu
DEMO_VOCAB = 8192
each_dtype = pytest.mark.parametrize("dtype", ["float32", "bfloat16"])


def noisy(vocab_size=TOY_VOCAB):
    return lambda outputs: NoisyDrafter(outputs, p=0.7, max_width=16, vocab_size=vocab_size)


def with_logprobs(count, seed):
    return [replace(r, params=replace(r.params, logprobs=3)) for r in varied_requests(count, seed=seed)]


@each_dtype
def test_chunks_and_neighbours_change_no_token_and_no_logprob(toy_model, dtype):
    requests, common = with_logprobs(24, 3), {"dtype": dtype, "device": "cuda"}
    expected = run(toy_model, requests, max_num_seqs=1, max_num_batched_tokens=512, **common).decided()
    for sequences, budget in ((8, 512), (24, 64), (5, 17), (3, 4)):
        got = run(toy_model, requests, max_num_seqs=sequences, max_num_batched_tokens=budget, **common).decided()
        assert got == expected, (sequences, budget)


@each_dtype
def test_preemption_changes_no_token_and_no_logprob(toy_model, dtype):
    requests = with_logprobs(24, 4)
    expected = run(toy_model, requests, dtype=dtype, device="cuda").decided()
    size = "440K" if dtype == "float32" else "220K"  # room for the longest request, not for two
    tight = run(toy_model, requests, dtype=dtype, device="cuda", kv_memory=size)
    assert tight.metrics.num_preemptions > 0
    assert tight.decided() == expected


@each_dtype
def test_hits_on_prompts_and_on_generated_blocks_change_nothing(toy_model, dtype):
    common = {"dtype": dtype, "device": "cuda"}
    first = toy_request("first", range(1, 50), max_tokens=60, ignore_eos=True, logprobs=3)
    engine = make_engine(toy_model, **common).engine
    generated = run_requests(engine, [first]).tokens()["first"]
    again = [
        toy_request("same", range(1, 50), max_tokens=60, ignore_eos=True, logprobs=3),
        toy_request("longer", [*range(1, 50), *generated], max_tokens=20, ignore_eos=True, logprobs=3),
    ]
    warm = run_requests(engine, again)
    assert [warm.outputs[r.request_id].steps[0].cached_tokens for r in again] == [48, 96]
    assert warm.decided() == run(toy_model, again, prefix_cache=False, **common).decided()


@each_dtype
@pytest.mark.parametrize("batch_size", [1, 8, 32])
def test_noisy_chains_and_trees_change_nothing_on_the_toy(toy_model, dtype, batch_size):
    requests = varied_requests(48)
    speculative = assert_lossless(
        toy_model, requests, noisy(), dtype=dtype, device="cuda", max_num_seqs=batch_size, max_num_batched_tokens=512
    )
    good, drafted = accepted(speculative)
    assert 0.15 < good / drafted < 0.9


@each_dtype
def test_noisy_chains_and_trees_change_nothing_on_the_demo_model(demo_model, dtype):
    requests = varied_requests(24, vocab_size=DEMO_VOCAB)
    speculative = assert_lossless(
        demo_model, requests, noisy(DEMO_VOCAB), dtype=dtype, device="cuda", kv_memory="512M", max_num_seqs=16
    )
    assert accepted(speculative)[0] > 0


def seconds(engine, requests):
    torch.cuda.synchronize()
    began = time.perf_counter()
    outcome = run_requests(engine, requests)
    torch.cuda.synchronize()
    return time.perf_counter() - began, outcome.tokens()


def test_the_table_of_speeds(demo_model, capsys):
    """No threshold: printed for a reader. The demo model in bfloat16, 64 greedy tokens after prompts of 64."""
    options = {"device": "cuda", "dtype": "bfloat16", "kv_memory": "1G", "max_num_seqs": 32, "prefix_cache": False}
    lines = [f"{torch.cuda.get_device_name()}: tokens/s   plain   oracle (8 guesses a step)"]
    for count in (1, 8, 32):
        requests = [
            toy_request(str(i), [(7 * i + j) % DEMO_VOCAB for j in range(64)], max_tokens=64, ignore_eos=True)
            for i in range(count)
        ]
        plain = make_engine(demo_model, **options).engine
        seconds(plain, requests)  # compiles
        took, tokens = seconds(plain, requests)
        drafted = make_engine(demo_model, OracleDrafter(tokens, 8), **options).engine
        seconds(drafted, requests)
        oracle_took, oracle_tokens = seconds(drafted, requests)
        assert oracle_tokens == tokens
        lines.append(f"{count:3d} requests {64 * count / took:16.0f} {64 * count / oracle_took:8.0f}")
    with capsys.disabled():
        print("\n" + "\n".join(lines))
