"""Several ranks give the tokens that one gives, in float32, and nearly its log-probabilities."""

from __future__ import annotations

import pytest
import torch
from rank_engines import assert_same_as_one_rank, ranks_of

from specserve_workbench.testing.engines import run_requests
from specserve_workbench.testing.requests import toy_request, varied_requests
from specserve_workbench.testing.toy import write_checkpoint


def requests_with_logprobs(count=10):
    greedy = [toy_request(f"g{i}", range(i, i + 30), max_tokens=20, logprobs=2, prompt_logprobs=1) for i in range(3)]
    return [*greedy, *varied_requests(count, seed=3)]


@pytest.mark.parametrize("kernels", ["torch", "cpu"])
def test_two_ranks_choose_the_tokens_of_one(toy_model, kernels):
    assert_same_as_one_rank(toy_model, requests_with_logprobs(), default_plugins=kernels == "cpu")


def test_the_demo_model_says_the_same_on_two_ranks(demo_model):
    requests = [toy_request(f"d{i}", range(40 + i, 70 + i), max_tokens=24, logprobs=1) for i in range(3)]
    assert_same_as_one_rank(demo_model, requests, dtype="float32", default_plugins=True)


@pytest.mark.parametrize(("ranks", "architecture", "changes"), [
    (4, "qwen2", {}),  # four ranks share two key heads; biases of queries, keys and values
    (3, "qwen3", {"num_attention_heads": 6, "num_key_value_heads": 3, "tie_word_embeddings": True, "vocab_size": 331}),
    (2, "llama", {"attention_bias": True, "mlp_bias": True, "intermediate_size": 321}),
    (2, "gemma3_text", {"intermediate_size": 333}),  # norms behind the ranks' sums
    (2, "gemma2", {}),
], ids=["shared key heads", "uneven vocabulary", "biases, uneven width", "output norms", "capped scores"])  # fmt: skip
def test_sizes_that_do_not_divide_evenly_change_no_token(tmp_path, ranks, architecture, changes):
    model = write_checkpoint(tmp_path / "model", architecture=architecture, **changes)
    assert_same_as_one_rank(model, requests_with_logprobs(6), ranks)


def test_two_ranks_choose_the_tokens_of_transformers(toy_model):
    transformers = pytest.importorskip("transformers")
    reference = transformers.AutoModelForCausalLM.from_pretrained(toy_model, dtype=torch.float32)
    prompts = [list(range(7 * i, 7 * i + 12)) for i in range(3)]
    requests = [toy_request(f"t{i}", prompt, max_tokens=16, ignore_eos=True) for i, prompt in enumerate(prompts)]
    with ranks_of(toy_model) as engine:
        got = run_requests(engine, requests).tokens()
    for i, prompt in enumerate(prompts):
        with torch.inference_mode():
            out = reference.generate(
                torch.tensor([prompt]), do_sample=False, min_new_tokens=16, max_new_tokens=16, eos_token_id=None,
                attention_mask=torch.ones(1, len(prompt), dtype=torch.int64), pad_token_id=0,
            )  # fmt: skip
        assert got[f"t{i}"] == out[0, len(prompt) :].tolist()
