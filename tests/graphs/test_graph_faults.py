"""Faults within replayed steps: they end the request that causes them, and no other."""

from __future__ import annotations

import pytest
from graph_runs import steps_of

from specserve_cpu.attention import CpuPagedAttention, PaddedPlan
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import make_engine, plain_run, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request, varied_requests

CPU = {"plugins": ("cpu",)}


def raising_for(request_id, function, after=0):
    """The function, which raises for batches with this request, once that has `after` new tokens."""

    def called(self, batch, *rest):
        if any(s.request.id == request_id and s.request.num_generated >= after for s in batch.spans):
            raise RuntimeError("this request cannot be planned")
        return function(self, batch, *rest)

    return called


@pytest.mark.parametrize(
    ("graphs", "owner", "method", "after"),
    [
        ("piecewise", CpuPagedAttention, "plan", 0),
        ("piecewise", CpuPagedAttention, "plan", 3),
        ("full", PaddedPlan, "load", 3),
    ],
)
@pytest.mark.parametrize("drafts", [False, True])
def test_a_request_whose_plan_raises_ends_alone(toy_model, monkeypatch, graphs, owner, method, after, drafts):
    requests = [*varied_requests(9), toy_request("bad", range(1, 20), max_tokens=12, ignore_eos=True)]
    plain = plain_run(toy_model, requests, **CPU)
    drafter = NoisyDrafter(plain.tokens(), p=0.7, max_width=6, vocab_size=TOY_VOCAB) if drafts else None
    engine = make_engine(toy_model, drafter, graphs=graphs, **CPU).engine
    monkeypatch.setattr(owner, method, raising_for("bad", getattr(owner, method), after))
    found = run_requests(engine, requests)
    assert found.outputs["bad"].finish_reason == "error"
    assert "this request cannot be planned" in found.outputs["bad"].steps[-1].error
    assert len(found.outputs["bad"].tokens) >= after
    for request_id, expected in plain.decided().items():
        if request_id != "bad":
            assert found.decided()[request_id] == expected, request_id
    assert steps_of(found.metrics).none == 0
    engine.check_integrity()


def test_what_a_request_left_in_the_buffers_is_not_the_next_ones(toy_model):
    """The same requests once more, behind others that ended in the middle of everything."""
    engine = make_engine(toy_model, graphs="full", **CPU).engine
    first = run_requests(engine, varied_requests(6)).decided()
    for request in varied_requests(8, seed=5):
        engine.add(request)
    for _ in range(5):
        engine.step()
    for request_id in list(engine.requests):
        engine.abort(request_id)
    assert run_requests(engine, varied_requests(6)).decided() == first
