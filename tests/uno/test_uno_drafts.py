"""Drafts of uno against a plain implementation, and what they depend on."""

from __future__ import annotations

from itertools import accumulate
from operator import mul

import pytest
import torch
from plain_llama import PlainLlama
from uno_engines import Witness, uno_engine

from draft_adapters import BLOCK, UNO_CONFIG
from drafted_requests import mixed_requests
from specserve_lora.uno.noise import noise_tokens
from specserve_workbench.testing.engines import accepted, run_requests
from specserve_workbench.testing.requests import toy_request
from toy_adapters import lora_of, lora_options, under, write_adapter


@torch.inference_mode()
def plain_draft(llama, draft, own, tokens, count):
    """Greedy draft tokens behind these tokens, and their probabilities."""
    noise = noise_tokens(len(tokens), count - 1, UNO_CONFIG["mask_token_id"])
    adapters = [own] * len(tokens) + [draft] * len(noise)
    best = llama.logits([*tokens, *noise], adapters)[len(tokens) - 1 :].softmax(-1).max(-1)
    return tuple(best.indices.tolist()), best.values.tolist()


def greedy_requests():
    return [toy_request(f"r{i}", range(1 + i, 4 + 5 * i), max_tokens=14, ignore_eos=True) for i in range(4)]


def assert_drafted_as(target, adapters, witness, requests, made):
    """adapters: the draft adapter, and the requests' own or None."""
    llama = PlainLlama(target)
    tokens = {request.request_id: [*request.prompt_token_ids, *made[request.request_id]] for request in requests}
    assert len(witness.drafts) > 20
    lengths = [len(draft) for draft in witness.drafts.values()]
    assert min(lengths) < max(lengths) == BLOCK, "shorter ones at the end"
    for (id, count), draft in witness.drafts.items():
        expected, probabilities = plain_draft(llama, *adapters, tokens[id][:count], len(draft))
        assert draft == expected, (id, count)
        survival = list(accumulate([1.0, *probabilities[1:]], mul))
        assert witness.survival[id, count] == pytest.approx(survival, rel=1e-3)


@pytest.mark.usefixtures("each_kernel_set")
def test_the_drafts_are_those_of_a_plain_implementation(uno_target, draft_adapter):
    witness, requests = Witness(), greedy_requests()
    engine = uno_engine(uno_target, draft_adapter, planner=witness)
    made = run_requests(engine, requests).tokens()
    assert_drafted_as(uno_target, (draft_adapter, None), witness, requests, made)


@pytest.mark.usefixtures("each_kernel_set")
@pytest.mark.parametrize("lora_first", [False, True])
def test_a_request_under_an_adapter_is_drafted_behind_its_own_keys_and_values(
    uno_target, draft_adapter, tmp_path, lora_first
):
    """Whichever plugin is enabled first, each adapter is added once."""
    own = write_adapter(tmp_path / "own", uno_target, rank=7, seed=5, size=0.5)
    witness, requests = Witness(), greedy_requests()
    names = ("lora", "uno") if lora_first else ("uno", "lora")
    tables = lora_options({"own": own}) | {"uno": {"adapter": str(draft_adapter)}}
    engine = uno_engine(uno_target, draft_adapter, planner=witness, plugins=names, plugin_options=tables)
    made = run_requests(engine, under(lora_of(engine), requests, ["own"] * 4)).tokens()
    assert not engine.metrics.drafter_faults
    assert_drafted_as(uno_target, (draft_adapter, own), witness, requests, made)


@pytest.mark.usefixtures("each_kernel_set")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_first_draft_token_is_always_right(uno_target, draft_adapter, dtype):
    """Its row is the next step's, bit for bit, and so are the noise and the processors of the request."""
    engine = uno_engine(uno_target, draft_adapter, dtype=dtype)
    served = run_requests(engine, mixed_requests(24))
    stats = [result.steps[-1].stats for result in served.outputs.values()]
    drafts = sum(each.num_spec_steps for each in stats)
    assert sum(sum(each.acceptance_histogram[:1]) for each in stats) == 0
    assert drafts > 100
    assert served.metrics.num_accepted_tokens > drafts, "and some behind it"


@pytest.mark.usefixtures("each_kernel_set")
def test_a_draft_depends_on_its_request_alone(uno_target, draft_adapter):
    requests = mixed_requests(16)
    together, alone = Witness(), Witness()
    run_requests(uno_engine(uno_target, draft_adapter, planner=together), requests)
    run_requests(
        uno_engine(
            uno_target, draft_adapter, planner=alone, max_num_seqs=1, max_num_batched_tokens=40, prefix_cache=False
        ),
        requests,
    )
    assert together.survival == alone.survival
    assert together.drafts == alone.drafts
    assert len(alone.drafts) > 60


def test_many_requests_are_drafted_in_several_passes(uno_target, draft_adapter):
    """Each has no more rows than a step may have."""
    requests = mixed_requests(16)
    engine = uno_engine(uno_target, draft_adapter, planner=(few := Witness()), max_num_batched_tokens=3 * BLOCK)
    (guard,) = engine.drafting.guards
    target, rows = guard.drafter.target, []
    compute = target.runner.forward
    target.runner.forward = lambda batch: rows.append(batch.num_rows) or compute(batch)
    assert not run_requests(engine, requests).metrics.drafter_faults
    assert max(rows) == 3 * BLOCK
    run_requests(uno_engine(uno_target, draft_adapter, planner=(together := Witness())), requests)
    both = few.drafts.keys() & together.drafts.keys()
    pairs = [(few.drafts[key], together.drafts[key]) for key in both]
    assert len(pairs) > 60
    assert all(a[: len(b)] == b[: len(a)] for a, b in pairs), "the step's budget cuts some"


@pytest.mark.usefixtures("each_kernel_set")
def test_a_sampled_request_is_drafted_with_the_noise_of_its_verification(uno_target, draft_adapter):
    """Where that is almost all that decides, almost all drafts are right."""
    requests = [toy_request(f"r{i}", (1, 2), temperature=50.0, seed=i, max_tokens=30, ignore_eos=True) for i in (1, 2)]
    good, drafted = accepted(run_requests(uno_engine(uno_target, draft_adapter), requests))
    assert 0.8 * drafted < good


@pytest.mark.usefixtures("each_kernel_set")
def test_a_processed_request_is_drafted_along_its_own_path(uno_target, draft_adapter):
    """Of two tokens that it prefers by far, none may follow itself."""
    wanted = {"logit_bias": {6: 90.0, 7: 90.0}, "bad_words": ((6, 6), (7, 7)), "max_tokens": 30, "ignore_eos": True}
    witness = Witness()
    served = run_requests(uno_engine(uno_target, draft_adapter, planner=witness), [toy_request("r", (1, 2), **wanted)])
    assert set(served.tokens()["r"]) == {6, 7}
    assert {len(set(draft)) for draft in witness.drafts.values() if len(draft) > 1} == {2}
    assert served.metrics.num_accepted_tokens == served.metrics.num_draft_tokens > 20


def test_random_tokens_are_those_of_their_position_and_within_their_bounds():
    tokens = noise_tokens(0, 4000, 9)
    assert set(tokens) == set(range(1, 9))
    assert noise_tokens(1234, 5, 9) == tokens[1234:1239]
    assert max(tokens.count(token) for token in set(tokens)) < 600
