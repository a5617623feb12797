"""On the device: the bit rule, losslessness under noisy drafts, and what a step costs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from sizes import BATCH_SIZES, DRY, NUM_REQUESTS

from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import accepted, assert_lossless, make_engine, run, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request, varied_requests

pytestmark = pytest.mark.gpu
DEMO_VOCAB = 8192
each_dtype = pytest.mark.parametrize("dtype", ["bfloat16"] if DRY else ["float32", "bfloat16"])


def noisy(vocab_size=TOY_VOCAB):
    return lambda outputs: NoisyDrafter(outputs, p=0.7, max_width=16, vocab_size=vocab_size)


def with_logprobs(count, seed):
    return [replace(r, params=replace(r.params, logprobs=3)) for r in varied_requests(count, seed=seed)]


@each_dtype
def test_chunks_and_neighbours_change_no_token_and_no_logprob(toy_model, dtype):
    requests, common = with_logprobs(NUM_REQUESTS // 2, 3), {"dtype": dtype, "device": "cuda"}
    expected = run(toy_model, requests, max_num_seqs=1, max_num_batched_tokens=512, **common).decided()
    for sequences, budget in ((24, 64), (3, 4), (8, 512), (5, 17))[: 2 if DRY else None]:
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
@pytest.mark.parametrize("batch_size", BATCH_SIZES)
def test_noisy_chains_and_trees_change_nothing_on_the_toy(toy_model, dtype, batch_size):
    requests = varied_requests(NUM_REQUESTS)
    speculative = assert_lossless(
        toy_model, requests, noisy(), dtype=dtype, device="cuda", max_num_seqs=batch_size, max_num_batched_tokens=512
    )
    good, drafted = accepted(speculative)
    assert 0.15 < good / drafted < 0.9


@each_dtype
def test_noisy_chains_and_trees_change_nothing_on_the_demo_model(demo_model, dtype):
    requests = varied_requests(NUM_REQUESTS // 2, vocab_size=DEMO_VOCAB)
    speculative = assert_lossless(
        demo_model, requests, noisy(DEMO_VOCAB), dtype=dtype, device="cuda", kv_memory="512M", max_num_seqs=16
    )
    assert accepted(speculative)[0] > 0
