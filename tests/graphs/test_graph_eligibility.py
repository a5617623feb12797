"""What plugins decline: exactly those steps run without the graph, with the plugin's reason."""

from __future__ import annotations

import msgspec
import pytest
from graph_runs import KindsOfSteps, steps_of

from specserve.attention.sdpa import SdpaFactory
from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.errors import PluginError, RequestError
from specserve.hookspecs import hookimpl
from specserve.protocols import GraphShape
from specserve_cpu.kernels import CpuKernels
from specserve_graphs.eligibility import MOST_REASONS, MOST_SHAPES, OTHER_REASONS, Eligibility
from specserve_workbench.testing.engines import make_engine, run_requests, watch
from specserve_workbench.testing.requests import toy_request, varied_requests


class Picky:
    """Declines what `declines` says, and remembers what it was asked."""

    def __init__(self, declines):
        self.declines, self.asked = declines, []

    @hookimpl
    def decline_graph(self, shape):
        self.asked.append(shape)
        return self.declines(shape)


def engine_with(model, picky, **options):
    declaration = PluginDeclaration(name="picky", provides={"server.routes": "a test's"})
    extra = {"picky": InProcessPlugin(picky, declaration)}
    return make_engine(model, plugins=("cpu",), extra=extra, **({"graphs": "full"} | options)).engine


def used(engine):
    """(rows, mode, reason) of every step from now on."""
    seen, forward = [], engine.runner.forward

    def watched(batch):
        output = forward(batch)
        seen.append((batch.num_rows, *output.graph))
        return output

    engine.runner.forward = watched
    return seen


def test_exactly_the_steps_of_a_declined_shape_run_without_it(toy_model):
    requests = varied_requests(14)
    picky = Picky(lambda shape: "three rows are unlucky" if shape.rows == 3 else None)
    engine = engine_with(toy_model, picky)
    seen = used(engine)
    plain = run_requests(make_engine(toy_model, plugins=("cpu",)).engine, requests)
    assert run_requests(engine, requests).decided() == plain.decided()
    reason = "picky: three rows are unlucky"
    assert {(mode, why) for rows, mode, why in seen if rows == 3} == {("none", reason)}
    assert {why for rows, _, why in seen if rows != 3} == {""}
    assert engine.metrics.graph_steps["none", reason] == sum(rows == 3 for rows, _, _ in seen) > 0
    assert sum(engine.metrics.graph_steps.values()) == engine.metrics.num_steps


def test_a_full_graph_that_is_declined_leaves_the_piecewise_one(toy_model):
    picky = Picky(lambda shape: "no\nfull   graphs" if shape.mode == "full" else None)
    engine, kinds = engine_with(toy_model, picky), KindsOfSteps()
    watch(engine, kinds)
    run_requests(engine, varied_requests(8))
    assert engine.metrics.graph_steps == {
        ("piecewise", "picky: no full graphs"): kinds.generated, ("piecewise", ""): kinds.others,
    }  # fmt: skip


def test_it_is_asked_once_for_each_shape_and_told_what_the_step_is(toy_model):
    picky = Picky(lambda shape: None)
    engine = engine_with(toy_model, picky)
    requests = [toy_request(str(i), range(1, 6 + i), max_tokens=12, ignore_eos=True, seed=i) for i in range(3)]
    run_requests(engine, requests)
    assert len(picky.asked) == len(set(picky.asked)) < engine.metrics.num_steps
    assert GraphShape(
        mode="full", rows=3, requests=3, widest=1, phases=("decode",), hidden_layers=(), lora_segments=0, lora_rank=0,
        has_trees=False,
    ) in picky.asked  # fmt: skip
    assert GraphShape(
        mode="piecewise", rows=18, requests=3, widest=7, phases=("prefill",), hidden_layers=(), lora_segments=0,
        lora_rank=0, has_trees=False,
    ) in picky.asked  # fmt: skip


def broken(shape):
    raise ValueError("what is a shape?")


def mistaken(shape):
    raise RequestError("a request has no shape")


@pytest.mark.parametrize("declines", [broken, mistaken, lambda shape: 3, lambda shape: "  "])
def test_a_plugin_that_fails_to_answer_has_declined(toy_model, declines):
    engine = engine_with(toy_model, Picky(declines))
    outputs = run_requests(engine, varied_requests(4))
    assert steps_of(outputs.metrics).reasons == {"picky: it failed to say whether it declines"}
    assert steps_of(outputs.metrics).none == outputs.metrics.num_steps
    assert {(plugin, part) for plugin, part, _ in engine.metrics.faults.counts} == {("picky", "decline_graph")}


def test_without_graphs_nobody_is_asked(toy_model):
    picky = Picky(broken)
    engine = engine_with(toy_model, picky, graphs="none")
    run_requests(engine, varied_requests(3))
    assert picky.asked == []
    assert not engine.metrics.faults.counts


def shape(rows):
    return GraphShape(
        mode="full", rows=rows, requests=1, widest=1, phases=("decode",), hidden_layers=(), lora_segments=0,
        lora_rank=0, has_trees=False,
    )  # fmt: skip


def test_reasons_and_shapes_are_bounded():
    asked = []

    def ask(shape):
        asked.append(shape)
        return [f"p: rows {shape.rows}", "q: and so on"]

    eligibility = Eligibility(ask)
    first = [eligibility.declined(shape(rows)) for rows in range(1, MOST_REASONS + 10)]
    assert first[0] == "p: rows 1; q: and so on"
    assert set(first[MOST_REASONS:]) == {OTHER_REASONS}
    for rows in range(MOST_SHAPES + 5):
        eligibility.declined(shape(rows))
    assert len(eligibility.decisions) == MOST_SHAPES
    count = len(asked)
    assert eligibility.declined(shape(MOST_SHAPES)) == OTHER_REASONS
    assert len(asked) == count


class Bare:
    """A fused pass as a kernel set may have written it before there were graphs."""

    def __init__(self, passes):
        self.embed, self.layers, self.logits = passes.embed, passes.layers, passes.logits


def test_a_fused_pass_that_cannot_reserve_is_refused_with_what_to_do(toy_model, monkeypatch):
    fuse = CpuKernels.fuse
    monkeypatch.setattr(CpuKernels, "fuse", lambda self, *rest: Bare(fuse(self, *rest)))
    make_engine(toy_model, plugins=("cpu",))
    with pytest.raises(
        PluginError, match=r"fused forward pass does not extend .*ForwardPass\. Let it, or pass --graphs none\."
    ):
        make_engine(toy_model, plugins=("cpu",), graphs="full")


class NoGraphs(SdpaFactory):
    name = "shy"
    capabilities = msgspec.structs.replace(SdpaFactory.capabilities, graphs=())


def test_a_backend_that_states_no_graphs_is_not_asked_for_any(toy_model):
    class Plugin:
        @hookimpl
        def attention_backends(self):
            return [NoGraphs()]

    declaration = PluginDeclaration(name="shy", provides={"attention.backend": "a test's"})
    extra = {"shy": InProcessPlugin(Plugin(), declaration)}
    engine = make_engine(toy_model, extra=extra, attention="shy", graphs="full").engine
    steps = steps_of(run_requests(engine, varied_requests(4)).metrics)
    said = "attention sdpa has no full graphs", "attention sdpa has no piecewise graphs"
    assert steps.reasons == {said[1], "; ".join(said)}
    assert (steps.full, steps.piecewise) == (0, 0)
