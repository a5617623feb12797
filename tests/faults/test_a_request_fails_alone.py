"""A request whose rows make the forward pass or the sampler raise ends alone, wherever it stands among 64."""

from __future__ import annotations

import msgspec
import pytest
from exploding import MARKER, ExplodingKernels, KernelsWithExplodingSampler, marked_model
from faulty import in_process

from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve_adaptive._native import Planner
from specserve_adaptive.competition import Competition
from specserve_workbench.testing.drafters import NoisyDrafter, OracleDrafter
from specserve_workbench.testing.engines import make_engine, plain_run, run, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request

CALLS = 18
"""Of one pass of the two-layer toy model: eight a layer, the final norm and the head."""
RAISED = "the step that verified its draft tokens raised"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return marked_model(tmp_path_factory.mktemp("marked") / "model")


def among(count, places, **options):
    """`count` requests, greedy and sampled, with marked ones at `places`."""
    requests = []
    for i in range(count):
        warm = {"temperature": 1.0, "seed": i} if i % 3 == 1 else {}
        prompt = [1 + i, *range(5, 9 + i % 5), MARKER if i in places else 3]
        more = {"logit_bias": {MARKER: -100.0}, "ignore_eos": True, "logprobs": 1 if i % 2 else None}
        requests.append(toy_request(str(i), prompt, max_tokens=6, **warm, **more, **options))
    return requests


def check(outcome, requests, places, expected):
    """The marked ones ended with an error, the others are as they would have been."""
    decided = outcome.decided()
    for i, request in enumerate(requests):
        if i in places:
            assert outcome.outputs[request.request_id].finish_reason == "error"
            assert "Boom" in outcome.outputs[request.request_id].steps[-1].error
        else:
            assert decided[request.request_id] == expected[request.request_id], i
    assert outcome.metrics.request_success["error"] == len(places)


def expected_of(model, requests, places):
    return run(model, [r for i, r in enumerate(requests) if i not in places], max_num_seqs=64).decided()


@pytest.mark.parametrize("length", range(CALLS))
def test_at_every_call_of_the_forward_pass(model, length):
    place = (7 * length) % 24
    requests = among(24, {place})
    plugin = in_process("boom", make_kernels=lambda: ExplodingKernels(length))
    outcome = run_requests(make_engine(model, extra=plugin, max_num_seqs=24).engine, requests)
    check(outcome, requests, {place}, expected_of(model, requests, {place}))
    assert outcome.metrics.faults.counts == {("boom", "kernels", "raised Boom"): 1}


@pytest.mark.parametrize("places", [{0}, {63}, {31}, {32}, {5, 6}, {0, 21, 42, 63}, set(range(0, 64, 2))], ids=str)
def test_wherever_it_stands_among_64(model, places):
    requests = among(64, places)
    plugin = in_process("boom", make_kernels=lambda: ExplodingKernels(9))
    outcome = run_requests(make_engine(model, extra=plugin, max_num_seqs=64, kv_memory="16M").engine, requests)
    check(outcome, requests, places, expected_of(model, requests, places))


@pytest.mark.parametrize("method", ["argmax_tokens", "target_tokens", "token_logprobs"])
def test_in_the_sampler(model, method):
    place = 5 if method == "token_logprobs" else 6
    requests = among(12, {place})
    if method == "argmax_tokens":  # asked only of greedy requests without processors
        params = msgspec.structs.replace(requests[place].params, logit_bias=None)
        requests[place] = msgspec.structs.replace(requests[place], params=params)
    plugin = in_process("boom", make_kernels=lambda: KernelsWithExplodingSampler(method))
    outcome = run_requests(make_engine(model, extra=plugin, max_num_seqs=12).engine, requests)
    expected = plain_run(model, requests, max_num_seqs=12).decided()
    check(outcome, requests, {place}, expected)
    assert set(outcome.metrics.faults.counts) == {("boom", "sampler", "raised Boom")}


def becoming_marked(count, places, max_tokens):
    """Sampled requests; those at `places` are likely to generate the marker, whose row the next step computes."""
    return [
        toy_request(
            str(i), [1 + i, *range(5, 9 + i % 5)], max_tokens=max_tokens, temperature=1.0, seed=i, ignore_eos=True,
            logit_bias={MARKER: 4.0 if i in places else -100.0},
        )
        for i in range(count)
    ]  # fmt: skip


def test_a_fault_in_the_middle_of_a_text_ends_it_behind_what_was_delivered(model):
    place = 1
    requests = becoming_marked(8, {place}, 30)
    plain = plain_run(model, requests)
    until_marked = plain.tokens()[str(place)].index(MARKER) + 1
    assert 3 < until_marked < 29
    plugin = in_process("boom", make_kernels=lambda: ExplodingKernels(5))
    outcome = run_requests(make_engine(model, extra=plugin).engine, requests)
    check(outcome, requests, {place}, plain.decided())
    assert outcome.outputs[str(place)].tokens == plain.outputs[str(place)].tokens[:until_marked]


@pytest.mark.parametrize("options", [
    {}, {"kv_memory": "320K"}, {"max_num_batched_tokens": 9}, {"max_num_seqs": 3, "block_size": 1},
], ids=str)  # fmt: skip
def test_in_the_middle_of_drafts_and_preemptions(model, options):
    places = {2, 9}
    requests = becoming_marked(16, places, 40)
    plain = plain_run(model, requests)
    plugin = in_process(
        "boom",
        make_kernels=lambda: ExplodingKernels(5),
        make_drafter=lambda: NoisyDrafter(plain.tokens(), p=0.7, max_width=8, vocab_size=TOY_VOCAB - 20),
        make_draft_planner=lambda: FixedWidthPlanner(8),
    )
    outcome = run_requests(make_engine(model, extra=plugin, **options).engine, requests)
    check(outcome, requests, places, plain.decided())
    for name in ("2", "9"):
        whole = plain.outputs[name].tokens
        assert outcome.outputs[name].tokens == whole[: whole.index(MARKER) + 1]
    assert outcome.metrics.num_accepted_tokens > 50
    assert (outcome.metrics.num_preemptions > 0) == ("kv_memory" in options)


class GuessesTheMarker(NoisyDrafter):
    name = "marking"

    def token_after(self, future, depth):
        return MARKER


def test_guesses_that_cannot_be_verified_cost_speculation_and_not_the_request(model):
    """A wrong guess is the marker: its row raises, the request itself never would."""
    requests = among(4, set())
    expected = plain_run(model, requests).decided()
    plugin = in_process(
        "boom",
        make_kernels=lambda: ExplodingKernels(5),
        make_drafter=lambda: GuessesTheMarker({name: [] for name in "0123"}, p=1, max_width=4, vocab_size=320),
        make_draft_planner=lambda: FixedWidthPlanner(8),
    )
    outcome = run_requests(make_engine(model, extra=plugin, prefix_cache=False).engine, requests)
    assert outcome.decided() == expected
    assert outcome.metrics.drafter_faults["marking", RAISED] > 4


def test_guesses_of_several_drafters_that_cannot_be_verified_count_for_each_of_them(model):
    requests = among(4, set())
    plain = plain_run(model, requests)
    outputs = plain.tokens()
    planner = FixedWidthPlanner(8)
    planner.composer = Competition(Planner("fair", 0.0), None, scores_all=True)
    plugins = in_process(
        "boom",
        make_kernels=lambda: ExplodingKernels(5),
        make_drafter=lambda: GuessesTheMarker(outputs, p=1, max_width=4, vocab_size=320),
        make_draft_planner=lambda: planner,
    ) | in_process("good", make_drafter=lambda: OracleDrafter(outputs, 2))
    outcome = run_requests(make_engine(model, extra=plugins, prefix_cache=False).engine, requests)
    assert outcome.decided() == plain.decided()
    assert set(outcome.metrics.drafter_faults) == {("marking", RAISED), ("oracle", RAISED)}


def test_a_fault_that_nobody_raises_alone_ends_nobody(model):
    """As when memory lasts for some requests and not for all of them."""
    requests = among(16, set())
    engine = make_engine(model, max_num_seqs=16).engine
    forward = engine.runner.forward

    def tight(batch):
        if len(batch.spans) > 3:
            raise MemoryError("too many of them")
        return forward(batch)

    engine.runner.forward = tight
    outcome = run_requests(engine, requests)
    assert outcome.decided() == plain_run(model, requests, max_num_seqs=16).decided()
    assert outcome.metrics.faults.counts["core", "step", "raised MemoryError"] > 0
    assert not outcome.metrics.request_success["error"]
