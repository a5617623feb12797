"""Faults while drafting cost drafts, and only those: of a pass, of a request's processor, of the target's numbers."""

from __future__ import annotations

import pytest
import torch
from eagle_engines import (
    KINDS,
    TREE_KINDS,
    FailingChains,
    FailingPasses,
    draft_kv,
    drafter_of,
    eagle_engine,
    fresh_draft_kv,
    runtime_of,
    write_draft,
    write_target,
)
from faulty import in_process

from covering import covering
from specserve.protocols import LogitsProcessor, ProcessorState
from specserve_workbench.testing.engines import run, run_requests
from specserve_workbench.testing.requests import toy_request, varied_requests

pytestmark = pytest.mark.usefixtures("each_kernel_set")


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def drafts(target, tmp_path_factory):
    path = tmp_path_factory.mktemp("drafts")
    return {kind: write_draft(path / kind, kind, target) for kind in KINDS}


def long_requests(count=3):
    return [toy_request(f"{i}", range(i, 20 + 11 * i), max_tokens=40, ignore_eos=True) for i in range(count)]


@covering(
    ("each_kernel_set", "kind"), ("kind", "from_target"),
    each_kernel_set=["torch", "cpu"], kind=KINDS, from_target=[True, False], indirect=["each_kernel_set"],
)  # fmt: skip
def test_drafting_goes_on_after_a_pass_that_failed_and_the_keys_are_right(target, drafts, kind, from_target):
    engine = eagle_engine(target, drafts[kind], block_size=4, max_num_batched_tokens=48)
    FailingPasses(engine, (1, 2, 4, 9), from_target=from_target or kind == "peagle")  # which has no other passes
    for request in long_requests():
        engine.add(request)
    for _ in range(10):
        engine.step()
    check_after_four_faults(engine, target, drafts[kind])


@pytest.mark.parametrize("kind", TREE_KINDS)
def test_drafting_goes_on_after_a_call_that_failed_in_the_midst_of_its_chains(target, drafts, kind):
    engine = eagle_engine(target, drafts[kind], block_size=4, max_num_batched_tokens=48)
    if not hasattr(drafter_of(engine).passes, "chains"):
        pytest.skip("these kernels go pass by pass")
    FailingChains(engine, (1, 2, 4, 9))
    for request in long_requests():
        engine.add(request)
    for _ in range(10):
        engine.step()
    check_after_four_faults(engine, target, drafts[kind])


def check_after_four_faults(engine, target, draft):
    assert engine.metrics.drafter_faults == {("eagle", "raised RuntimeError"): 4}
    assert engine.metrics.num_draft_tokens > 20
    for name, sequence in runtime_of(engine).sequences.items():
        kv = draft_kv(engine, sequence)
        fresh = fresh_draft_kv(target, draft, sequence.request.tokens, block_size=4)
        assert len(kv.tokens) > 20, name
        assert torch.equal(kv.data, fresh.data[:, :, : len(kv.tokens)])
        assert kv.states is None or torch.equal(kv.states, fresh.states[: len(kv.states)])


def test_blocks_whose_pass_failed_as_their_request_ended_are_not_drafted_from(target, drafts):
    """The tokens of an ended request are not fed again: its last block stays incomplete, and who hits it goes without
    drafts rather than with wrong keys."""
    engine = eagle_engine(target, drafts["eagle3"], block_size=8)
    first, failing = (
        toy_request("first", range(20), max_tokens=13, ignore_eos=True),
        FailingPasses(engine, range(2, 30)),
    )
    tokens = [*range(20), *run_requests(engine, [first]).tokens()["first"]]
    failing.mend()
    before = engine.metrics.num_draft_tokens
    second = toy_request("second", [*tokens, 9], max_tokens=8, ignore_eos=True)
    outcome = run_requests(engine, [second])
    assert outcome.outputs["second"].steps[0].cached_tokens == 32
    assert engine.metrics.num_draft_tokens == before
    assert outcome.tokens()["second"] == run(target, [second]).tokens()["second"]


def test_it_is_switched_off_after_as_many_faulty_steps_as_the_limit_says(target, drafts, caplog):
    engine = eagle_engine(target, drafts["eagle3"], draft_fault_limit=3)
    failing = FailingPasses(engine, range(100))
    requests = varied_requests(12, vocab_size=64)
    outcome = run_requests(engine, requests)
    assert outcome.decided() == run(target, requests).decided()
    assert engine.metrics.drafters_disabled == {"eagle"}
    assert failing.num_calls == 3
    assert "drafter eagle is switched off after 3 faulty steps in a row" in caplog.text


class Grumpy(LogitsProcessor, ProcessorState):
    """A logits processor, and its state. It raises where a culprit's path or tokens reach a given length."""

    def __init__(self, limit=24, request=None):
        self.limit, self.request = limit, request

    def start(self, request, vocab_size):
        return Grumpy(self.limit, request)

    def apply(self, logits, path):
        if self.request.id.startswith("culprit") and len(self.request.tokens) + len(path) >= self.limit:
            raise ValueError("too long")
        return logits


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("kind", ["standalone", "eagle3"])
def test_a_processor_that_raises_while_drafting_ends_its_request_when_verification_meets_it(
    target, drafts, kind, temperature
):
    names = ("a", "culprit", "b")
    requests = [
        toy_request(name, range(i, 15), max_tokens=20, ignore_eos=True, temperature=temperature, seed=i)
        for i, name in enumerate(names)
    ]
    extra = in_process("grumpy", logits_processors=lambda: [Grumpy()])
    plain = run(target, requests, extra=extra)
    extra = in_process("grumpy", logits_processors=lambda: [Grumpy()])
    engine = eagle_engine(target, drafts[kind], extra=extra)
    outcome = run_requests(engine, requests)
    assert all(outcome.decided()[name] == plain.decided()[name] for name in ("a", "b"))
    assert [outcome.outputs[name].finish_reason for name in names] == ["length", "error", "length"]
    # without drafts it ends one token later for each draft token that was accepted before the row that raises
    assert len(plain.tokens()["culprit"]) == 24 - 14
    assert outcome.tokens()["culprit"] == plain.tokens()["culprit"][: len(outcome.tokens()["culprit"])]
    assert len(outcome.tokens()["culprit"]) >= 24 - 14 - 4
    assert not engine.metrics.drafters_disabled
    assert not engine.metrics.drafter_faults
    assert engine.metrics.num_draft_tokens > 20
    for name in ("a", "b"):  # steps were computed in parts meanwhile, and the keys of the others are right
        figures = outcome.outputs[name].steps[-1].stats
        assert kind != "standalone" or figures.num_accepted_draft_tokens == figures.num_draft_tokens


@covering(
    ("each_kernel_set", "kind"), ("each_kernel_set", "value"),
    each_kernel_set=["torch", "cpu"], kind=KINDS, value=[float("nan"), float("inf")], indirect=["each_kernel_set"],
)  # fmt: skip
def test_hidden_states_that_are_not_finite_cost_only_drafts(tmp_path, kind, value):
    """One token's embedding is not finite: requests that read it answer what they answer without drafts."""
    from safetensors.torch import load_file, save_file

    target = write_target(tmp_path / "target")
    weights = load_file(target / "model.safetensors")
    weights["model.embed_tokens.weight"][63] = value
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    requests = [
        toy_request("bad", [1, 2, 63, 4], max_tokens=12, ignore_eos=True),
        toy_request("good", range(20), max_tokens=12, ignore_eos=True),
    ]
    plain = run(target, requests)
    engine = eagle_engine(target, write_draft(tmp_path / "draft", kind, target))
    for _ in range(2):  # blocks are used again
        outcome = run_requests(engine, requests)
        assert {name: out.tokens for name, out in outcome.outputs.items()} == plain.tokens()
    assert not engine.metrics.drafter_faults
    good = outcome.outputs["good"].steps[-1].stats
    assert good.num_draft_tokens > 0
