"""The engine against transformers and a plain-Python sampler: no code in common but the toy checkpoint."""

from __future__ import annotations

import pytest
import torch

from covering import covering
from one_pass import next_logits_along
from specserve.types import SamplingParams
from specserve_workbench.testing.engines import run
from specserve_workbench.testing.reference import reference_generate
from specserve_workbench.testing.requests import toy_request
from specserve_workbench.testing.toy import write_checkpoint

pytestmark = pytest.mark.usefixtures("each_kernel_set")

EXTRA = {"llama": {}, "mistral": {"sliding_window": 48}, "qwen2": {}, "qwen3": {}}


def transformers_logits(directory, prompts, answers):
    """Behind any tokens, and in one pass for each prompt with its answer."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    return next_logits_along(model, *([*prompt, *answers[name]] for name, prompt in prompts.items()))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@covering(architecture=EXTRA, each_kernel_set=["torch", "cpu"], indirect=["each_kernel_set"])
def test_greedy_tokens_are_those_of_transformers(tmp_path, architecture):
    model = write_checkpoint(tmp_path / "model", architecture=architecture, **EXTRA[architecture])
    prompts = {str(n): list(range(5, 5 + n)) for n in (1, 20, 90)}
    requests = [toy_request(name, prompt, max_tokens=64, ignore_eos=True) for name, prompt in prompts.items()]
    got = run(model, requests, max_num_batched_tokens=50).tokens()
    replayed = run(model, requests, max_num_batched_tokens=50, graphs="full")
    assert replayed.tokens() == got
    assert {mode for mode, _ in replayed.metrics.graph_steps} <= {"full", "piecewise"}
    next_logits = transformers_logits(model, prompts, got)
    greedy = SamplingParams(temperature=0.0, max_tokens=64, ignore_eos=True)
    for name, prompt in prompts.items():
        assert got[name] == reference_generate(next_logits, prompt, greedy, ())


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_seeded_samples_are_those_of_the_reference_loop(toy_model):
    variants = [{}, {"top_k": 7}, {"top_p": 0.8}, {"min_p": 0.1}, {"top_k": 40, "top_p": 0.9, "min_p": 0.02}]
    requests = [
        toy_request(str(i), range(3, 9 + i), max_tokens=12, temperature=0.7 + 0.1 * (i % 4), seed=i, **variants[i % 5])
        for i in range(20)
    ]
    got = run(toy_model, requests).tokens()
    assert run(toy_model, requests, graphs="full").tokens() == got
    prompts = {request.request_id: request.prompt_token_ids for request in requests}
    next_logits = transformers_logits(toy_model, prompts, got)
    for request in requests:
        expected = reference_generate(next_logits, request.prompt_token_ids, request.params, (317,))
        assert got[request.request_id] == expected


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_the_demo_model_generates_what_transformers_generates(demo_model):
    prompt = list(range(300, 340))
    got = run(demo_model, [toy_request("a", prompt, max_tokens=64, ignore_eos=True)], dtype="float32").tokens()
    greedy = SamplingParams(temperature=0.0, max_tokens=64, ignore_eos=True)
    next_logits = transformers_logits(demo_model, {"a": prompt}, got)
    assert got["a"] == reference_generate(next_logits, prompt, greedy, ())


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_a_window_far_from_the_prompts_beginning_sees_what_transformers_sees(tmp_path):
    model = write_checkpoint(tmp_path / "model", architecture="mistral", sliding_window=40)
    prompt = [(7 * i) % 300 for i in range(1100)]  # more keys than torch's kernel takes in one block
    got = run(model, [toy_request("a", prompt, max_tokens=12, ignore_eos=True)]).tokens()
    greedy = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
    assert got["a"] == reference_generate(transformers_logits(model, {"a": prompt}, got), prompt, greedy, ())
