"""Log-probabilities of the prompt: those of transformers, in bounded slices, whatever else the engine does."""

from __future__ import annotations

import pytest
import torch
from msgspec.structs import replace

from specserve.engine.scheduler import PROMPT_SCORING_ROWS
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import make_engine, run, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request

pytestmark = pytest.mark.usefixtures("each_kernel_set")

PROMPT = tuple((7 * i + i * i) % 310 for i in range(300))


def request(name="r", prompt=PROMPT, count=3, **params):
    return toy_request(name, prompt, prompt_logprobs=count, **({"max_tokens": 8, "ignore_eos": True} | params))


@pytest.fixture(scope="module")
def reference(toy_model):
    """log_softmax [len(PROMPT), V] of a transformers forward."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(toy_model, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.inference_mode():
        return torch.log_softmax(model(torch.tensor([PROMPT])).logits[0], -1)


@pytest.fixture(scope="module")
def plain(toy_model, each_kernel_set):
    return run(toy_model, [request()]).outputs["r"]


def test_they_are_those_of_transformers(plain, reference):
    assert [entry.token_id for entry in plain.prompt_logprobs] == list(PROMPT[1:])
    for i, entry in enumerate(plain.prompt_logprobs):
        assert entry.logprob == pytest.approx(reference[i, PROMPT[i + 1]].item(), abs=1e-4)
        best = reference[i].topk(3)
        assert entry.top_logprobs == pytest.approx(best.values.tolist(), abs=1e-4)
        assert reference[i][list(entry.top_ids)].tolist() == pytest.approx(best.values.tolist(), abs=1e-4)


def test_they_are_raw_whatever_the_sampling_parameters(toy_model, plain):
    bent = request(temperature=0.7, seed=1, repetition_penalty=1.5, logit_bias={3: 50.0}, top_k=2)
    assert run(toy_model, [bent]).outputs["r"].prompt_logprobs == plain.prompt_logprobs


@pytest.mark.parametrize("options", [
    {"max_num_batched_tokens": 7}, {"max_num_batched_tokens": 100}, {"chunked_prefill": False}, {"block_size": 1},
    {"prefix_cache": False},
], ids=str)  # fmt: skip
def test_chunks_and_blocks_change_nothing(toy_model, plain, options):
    output = run(toy_model, [request()], **options).outputs["r"]
    assert output[:4] == plain[:4]


def test_speculation_changes_nothing(toy_model, plain):
    drafter = NoisyDrafter({"r": plain.tokens, "n": [1] * 40}, p=0.8, max_width=6, vocab_size=TOY_VOCAB)
    neighbour = toy_request("n", [1, 2], max_tokens=40, ignore_eos=True)
    guessed = run(toy_model, [neighbour, request()], drafter, max_num_batched_tokens=20)
    assert guessed.outputs["r"][:4] == plain[:4]
    assert guessed.metrics.num_draft_tokens > 0


def test_a_preemption_within_the_prompt_delivers_nothing_twice(toy_model, plain):
    engine = make_engine(toy_model, kv_memory="336K", max_num_batched_tokens=16).engine
    first = engine.add(replace(toy_request("first", range(1, 17), max_tokens=30, ignore_eos=True), priority=-1))
    scored = engine.add(request())
    outputs = []
    while engine.has_work:
        # once, in the middle of the prompt, somebody more urgent needs every block
        if scored.computed >= 160 and not scored.num_preemptions:
            engine.scheduler.preempt(scored)
        outputs += [output for output in engine.step() if output.request_id == "r"]
    engine.check_integrity()
    assert scored.num_preemptions == 1
    assert first.finish_reason == "length"
    entries = [entry for output in outputs for entry in output.prompt_logprobs or ()]
    assert entries == plain.prompt_logprobs
    assert [token for output in outputs for token in output.tokens] == plain.tokens


def test_a_preemption_after_the_prompt_delivers_nothing_twice(toy_model, plain):
    engine = make_engine(toy_model).engine
    live = engine.add(request())
    outputs = []
    while engine.has_work:
        outputs += engine.step()
        if live.num_generated == 3 and not live.num_preemptions:
            engine.scheduler.preempt(live)
    entries = [entry for output in outputs for entry in output.prompt_logprobs or ()]
    assert entries == plain.prompt_logprobs


def test_one_token_and_the_logprobs_of_the_prompt_are_enough(toy_model, plain):
    output = run(toy_model, [request(max_tokens=1, logprobs=1)]).outputs["r"]
    assert output.prompt_logprobs == plain.prompt_logprobs
    assert output.tokens == plain.tokens[:1]
    assert len(output.logprobs) == 1


@pytest.mark.parametrize(("prompt", "expected"), [(PROMPT[:1], 0), (PROMPT[:2], 1), (PROMPT[:17], 16)])
def test_a_prompt_has_one_fewer_logprobs_than_tokens(toy_model, plain, prompt, expected):
    output = run(toy_model, [request(prompt=prompt)]).outputs["r"]
    assert output.prompt_logprobs == plain.prompt_logprobs[:expected]


def test_no_more_rows_are_scored_in_a_step_than_memory_is_planned_for(toy_model):
    engine = make_engine(toy_model, max_num_batched_tokens=512).engine
    engine.add(request())
    scored, delivered = [], []
    while engine.has_work:
        outputs = engine.step()
        delivered += [len(output.prompt_logprobs) for output in outputs if output.prompt_logprobs]
        scored.append(len(outputs))
    assert max(delivered) <= PROMPT_SCORING_ROWS
    assert delivered == [128, 128, 43]


def test_neither_known_blocks_nor_the_lack_of_them_change_anything(toy_model, plain):
    engine = make_engine(toy_model).engine
    run_requests(engine, [toy_request("warm", PROMPT, max_tokens=1)])
    outcome = run_requests(engine, [request()])
    assert outcome.outputs["r"][:4] == plain[:4]
    assert outcome.outputs["r"].steps[-1].cached_tokens == 0
    again = run_requests(engine, [toy_request("again", PROMPT, max_tokens=1)])
    assert again.outputs["again"].steps[0].cached_tokens == 288, "a scored prompt publishes its blocks all the same"


def test_zero_top_tokens_still_give_each_tokens_own(toy_model, plain):
    output = run(toy_model, [request(count=0)]).outputs["r"]
    assert [e.logprob for e in output.prompt_logprobs] == [e.logprob for e in plain.prompt_logprobs]
    assert all(e.top_ids == () for e in output.prompt_logprobs)


def test_a_request_that_did_not_ask_gets_none(toy_model):
    output = run(toy_model, [toy_request("r", PROMPT)]).outputs["r"]
    assert all(output.prompt_logprobs is None for output in output.steps)


def test_a_prompt_that_is_scored_row_by_row_loses_none(toy_model):
    requests = [toy_request("a", range(1, 12), prompt_logprobs=2, max_tokens=2), toy_request("b", range(1, 9))]
    expected = run(toy_model, requests).decided()
    single = run(toy_model, requests, max_num_batched_tokens=1)
    assert len(single.outputs["a"].prompt_logprobs) == 10
    assert single.decided() == expected
