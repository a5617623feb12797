"""The prefix cache with a draft model: hits are what they are without it, and what is found there is drafted from."""

from __future__ import annotations

import pytest
import torch
from eagle_engines import KINDS, Recorder, draft_kv, eagle_engine, fresh_draft_kv, runtime_of, write_draft, write_target

from covering import covering
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve.types import SpeculationParams
from specserve_workbench.testing.engines import make_engine, run_requests
from specserve_workbench.testing.requests import toy_request

pytestmark = pytest.mark.usefixtures("each_kernel_set")

SYSTEM = tuple(range(2, 52))


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def drafts(target, tmp_path_factory):
    path = tmp_path_factory.mktemp("drafts")
    return {kind: write_draft(path / kind, kind, target) for kind in KINDS}


def conversations(engine, num_turns=4):
    """Three conversations with a common beginning, whose turns continue the ones before; hits turn by turn."""
    texts = {name: [*SYSTEM, *range(10 * i, 10 * i + 7)] for i, name in enumerate("abc")}
    hits = []
    for turn in range(num_turns):
        requests = [
            toy_request(f"{name}{turn}", text, max_tokens=9 + 4 * turn, ignore_eos=True, temperature=0.3, seed=turn)
            for name, text in texts.items()
        ]
        outcome = run_requests(engine, requests)
        for name, text in texts.items():
            output = outcome.outputs[f"{name}{turn}"]
            hits.append(output.steps[0].cached_tokens)
            text += [*output.tokens, 3, 4, 5]
    return hits


@covering(
    ("each_kernel_set", "kind"), ("kind", "block_size"), ("budget", "block_size"),
    each_kernel_set=["torch", "cpu"], kind=["standalone", "eagle3"], block_size=[1, 4, 16], budget=[512, 24],
    indirect=["each_kernel_set"],
)  # fmt: skip
def test_hits_are_the_same_with_and_without_a_draft_model(target, drafts, kind, block_size, budget):
    options = {"block_size": block_size, "max_num_batched_tokens": budget}
    plain = make_engine(target, **options).engine
    expected = conversations(plain)
    assert sum(expected) > 500
    assert conversations(eagle_engine(target, drafts[kind], **options)) == expected
    assert conversations(eagle_engine(target, drafts[kind], planner=FixedWidthPlanner(0), **options)) == expected


def first_turn(engine, length):
    """A request of which the last step completes a block: `length` tokens are computed in the end."""
    request = toy_request("first", SYSTEM[:20], max_tokens=length + 1 - 20, ignore_eos=True)
    return [*SYSTEM[:20], *run_requests(engine, [request]).tokens()["first"]]


@covering(
    ("each_kernel_set", "kind"), ("kind", "verifies"),
    each_kernel_set=["torch", "cpu"], kind=KINDS, verifies=[False, True], indirect=["each_kernel_set"],
)  # fmt: skip
def test_a_second_turn_is_drafted_from_blocks_that_the_first_turns_last_step_completed(target, drafts, kind, verifies):
    def second_turn(prefix_cache):
        engine = eagle_engine(target, drafts[kind], block_size=8, prefix_cache=prefix_cache)
        tokens = first_turn(engine, 48)
        recorder = Recorder(verifies=verifies)
        engine.planner = engine.scheduler.planner = engine.drafting.planner = recorder
        outcome = run_requests(engine, [toy_request("second", [*tokens, 9], max_tokens=8, ignore_eos=True)])
        return outcome.outputs["second"].steps[0].cached_tokens, recorder.drafts

    cached, hit = second_turn(prefix_cache=True)
    none, computed = second_turn(prefix_cache=False)
    assert (cached, none) == (48, 0)
    assert hit == computed
    assert min(count for _, count in hit) == 51  # from the first generated token on


@covering(
    ("each_kernel_set", "kind"), ("kind", "length"),
    each_kernel_set=["torch", "cpu"], kind=KINDS, length=[47, 48, 49], indirect=["each_kernel_set"],
)  # fmt: skip
def test_keys_behind_a_hit_are_those_of_a_fresh_computation(target, drafts, kind, length):
    engine = eagle_engine(target, drafts[kind], block_size=8)
    tokens = [*first_turn(engine, length), 9, 8]
    engine.add(toy_request("second", tokens, max_tokens=4, ignore_eos=True))
    engine.step()
    sequence = runtime_of(engine).sequences["second"]
    assert sequence.num_finalized == len(tokens) // 8
    kv, fresh = draft_kv(engine, sequence), fresh_draft_kv(target, drafts[kind], tokens, block_size=8)
    assert len(kv.tokens) == len(tokens) + 1
    assert torch.equal(kv.data[:, :, : len(tokens)], fresh.data[:, :, : len(tokens)])
    assert kv.states is None or torch.equal(kv.states, fresh.states[: len(kv.states)])


def test_a_request_that_is_not_drafted_for_leaves_blocks_that_others_are_drafted_from(target, drafts):
    """Its tokens wait only until a block is complete."""
    engine = eagle_engine(target, drafts["eagle3"], block_size=8, planner=FixedWidthPlanner(0))
    tokens = first_turn(engine, 48)
    recorder = Recorder()
    engine.planner = engine.scheduler.planner = engine.drafting.planner = recorder
    outcome = run_requests(engine, [toy_request("second", [*tokens, 9], max_tokens=8, ignore_eos=True)])
    assert outcome.outputs["second"].steps[0].cached_tokens == 48
    assert len(recorder.drafts) > 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_that_excludes_the_draft_model_leaves_blocks_that_others_are_drafted_from(target, drafts, kind):
    """It is drafted for by another, and its accepted draft tokens are tokens like others."""
    engine = eagle_engine(target, drafts[kind], block_size=8, beside=("ngram",))
    wish = SpeculationParams(drafters=("ngram",))
    request = toy_request("first", SYSTEM[:20], max_tokens=29, ignore_eos=True, logit_bias={6: 99.0}, speculation=wish)
    outcome = run_requests(engine, [request])
    tokens = [*SYSTEM[:20], *outcome.tokens()["first"]]
    assert {*outcome.outputs["first"].steps[-1].stats.by_drafter} == {"ngram"}
    engine.add(toy_request("second", [*tokens, 9], max_tokens=4, speculation=SpeculationParams(drafters=("eagle",))))
    engine.step()
    sequence = runtime_of(engine).sequences["second"]
    assert sequence.request.cached_tokens == 48
    assert {sequence.request.draft.source} == {"eagle"}
    kv, fresh = draft_kv(engine, sequence), fresh_draft_kv(target, drafts[kind], [*tokens, 9], block_size=8)
    assert torch.equal(kv.data[:, :, :50], fresh.data[:, :, :50])


class Idle(FixedWidthPlanner):
    """Wants no drafts and need not be called."""

    def limits(self, requests):
        return [0] * len(requests)

    def idle_steps(self):
        return 10_000


@covering(("each_kernel_set",), each_kernel_set=["torch", "cpu"], kind=KINDS, indirect=["each_kernel_set"])
def test_a_second_turn_is_drafted_from_blocks_of_a_long_answer_for_which_nobody_drafted(tmp_path, kind):
    long_target = write_target(tmp_path / "target", max_position_embeddings=2048)
    draft = write_draft(tmp_path / "draft", kind, long_target, max_position_embeddings=2048)

    def second_turn(prefix_cache):
        options = {"block_size": 8, "prefix_cache": prefix_cache, "kv_memory": "64M"}
        engine = eagle_engine(long_target, draft, planner=Idle(0), **options)
        tokens = first_turn(engine, 1001)
        recorder = Recorder()
        engine.planner = engine.scheduler.planner = engine.drafting.planner = recorder
        outcome = run_requests(engine, [toy_request("second", [*tokens, 9], max_tokens=8, ignore_eos=True)])
        assert not outcome.metrics.drafter_faults
        return outcome.outputs["second"].steps[0].cached_tokens, recorder.drafts

    cached, drafted = second_turn(prefix_cache=True)
    assert cached == 1000
    assert second_turn(prefix_cache=False) == (0, drafted)
    assert len(drafted) > 1
