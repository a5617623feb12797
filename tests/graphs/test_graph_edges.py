"""Steps at the edges of what a graph holds: bucket sizes, adapters, preemption, hidden states that are wanted later."""

from __future__ import annotations

import pytest
import torch
from graph_runs import steps_of

from specserve.batch.hidden_states import HiddenBuffers
from specserve_cpu.attention import PaddedPlan
from specserve_workbench.testing.engines import make_engine, run_requests
from specserve_workbench.testing.requests import toy_request, varied_requests
from toy_adapters import lora_engine, under, write_adapter

CPU = {"plugins": ("cpu",)}


class RowsByUse:
    """Which numbers of rows ran in which mode, and why."""

    def __init__(self, engine):
        self.seen = set()
        forward = engine.runner.forward

        def watched(batch):
            output = forward(batch)
            self.seen.add((batch.num_rows, *output.graph))
            return output

        engine.runner.forward = watched

    def of(self, rows):
        return {(mode, reason) for count, mode, reason in self.seen if count == rows}


def decoding(count, tokens=8):
    return [
        toy_request(f"{count}-{i}", (5 + i, 6, 7), max_tokens=tokens, ignore_eos=True, seed=i) for i in range(count)
    ]


@pytest.mark.parametrize("mode", ["full", "piecewise"])
def test_at_below_and_above_each_bucket(toy_model, mode):
    options = {"max_num_seqs": 12, "max_num_batched_tokens": 40, **CPU}
    plain = make_engine(toy_model, graphs="none", **options).engine
    recorded = make_engine(toy_model, graphs=mode, graph_buckets=(2, 4, 8), **options).engine
    rows = RowsByUse(recorded)
    for count in (1, 2, 3, 4, 5, 7, 8, 9, 12):
        assert run_requests(recorded, decoding(count)).decided() == run_requests(plain, decoding(count)).decided()
        # a prompt's three tokens make up steps of three, too
        assert (mode, "") in rows.of(count) if count <= 8 else rows.of(count) == {TOO_MANY}
    assert {key.rows for key in recorded.runner.library.recorded} == {2, 4, 8}
    assert recorded.runner.describe_graphs()["without"] == "steps of 9 to 40 rows run without a graph"


TOO_MANY = ("none", "more rows than the largest bucket, 8")


def test_adapters_of_more_segments_and_of_a_higher_rank_have_their_own_graphs(toy_model, tmp_path):
    adapters = {f"r{r}": write_adapter(tmp_path / f"r{r}", toy_model, rank=r, seed=r, size=0.5) for r in (2, 3, 4, 33)}
    results, keys = {}, []
    for graphs in ("none", "full"):
        engine, store = lora_engine(toy_model, adapters, beside=("cpu",), graphs=graphs)
        results[graphs] = []
        for names in (["r2"], ["r2", "r2"], ["r2", "r3", "r4"], ["r33"], [None, "r33"], [None, None]):
            requests = under(store, decoding(len(names)), names)
            results[graphs].append(run_requests(engine, requests).decided())
            if graphs == "full":
                keys.append(
                    {(k.lora_segments, k.lora_rank) for k in engine.runner.library.recorded if k.mode == "full"}
                )
    assert results["full"] == results["none"]
    new = [after - before for before, after in zip([set(), *keys], keys, strict=False)]
    # two requests of one adapter are one segment; of three adapters, three, held by a graph for four
    assert new == [{(1, 2)}, set(), {(4, 4)}, {(1, 64)}, set(), {(0, 0)}]


@pytest.mark.parametrize("mode", ["full", "piecewise"])
def test_preemption_in_the_middle(toy_model, mode):
    requests = [toy_request(str(i), range(1, 40 + i), max_tokens=60, ignore_eos=True, seed=i) for i in range(6)]
    plain = run_requests(make_engine(toy_model, graphs="none", kv_memory="150K", **CPU).engine, requests)
    recorded = run_requests(make_engine(toy_model, graphs=mode, kv_memory="150K", **CPU).engine, requests)
    assert recorded.metrics.num_preemptions == plain.metrics.num_preemptions > 0
    assert recorded.decided() == plain.decided()
    assert steps_of(recorded.metrics).none == 0


def test_a_graph_without_hidden_states_serves_no_step_that_wants_them(toy_model):
    engines = {graphs: make_engine(toy_model, graphs=graphs, **CPU).engine for graphs in ("none", "full")}
    seen = {graphs: [] for graphs in engines}
    for graphs, engine in engines.items():
        size = engine.runner.model.hidden_size
        for turn, layers in enumerate([(), (1,), (0, 2), (), (1,)]):
            engine.runner.hidden = HiddenBuffers(layers, size)
            forward = engine.runner.forward

            def kept(batch, seen=seen[graphs], forward=forward):
                output = forward(batch)
                seen.append({layer: hidden.clone() for layer, hidden in output.hidden.items()})
                return output

            engine.runner.forward = kept
            run_requests(engine, [toy_request(f"{turn}-{i}", range(1, 9), max_tokens=4, seed=i) for i in range(3)])
            engine.runner.forward = forward
    assert len(seen["full"]) == len(seen["none"]) > 15
    for one, other in zip(seen["full"], seen["none"], strict=True):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[layer], other[layer]) for layer in one)
    wanted = {key.hidden_layers for key in engines["full"].runner.library.recorded}
    assert wanted == {(), (1,), (0, 2)}
    assert steps_of(engines["full"].metrics).none == 0


def test_hidden_states_of_a_replayed_step_stay_when_the_next_one_runs(toy_model):
    """Drafters keep those of several steps."""
    engine = make_engine(toy_model, graphs="full", **CPU).engine
    engine.runner.hidden = HiddenBuffers((1,), engine.runner.model.hidden_size)
    kept, copies = [], []

    forward = engine.runner.forward

    def keeping(batch):
        output = forward(batch)
        kept.append(output.hidden[1])
        copies.append(output.hidden[1].clone())
        return output

    engine.runner.forward = keeping
    run_requests(engine, varied_requests(4))
    assert all(torch.equal(one, copy) for one, copy in zip(kept, copies, strict=True))


def test_adapters_are_not_kept_where_the_plan_does_not_fit_or_raises(toy_model, tmp_path, monkeypatch):
    adapters = {"a": write_adapter(tmp_path / "a", toy_model, rank=4)}
    engine, store = lora_engine(toy_model, adapters, beside=("cpu",), graphs="full")
    run_requests(engine, under(store, decoding(2), ["a", "a"]))
    monkeypatch.setattr(PaddedPlan, "load", lambda self, batch: "it does not fit")
    run_requests(engine, under(store, decoding(2), ["a", "a"]))
    assert "it does not fit" in steps_of(engine.metrics).reasons
    for each in engine.runner.library.recorded.values():
        assert each.lora is None or list(each.lora.segments) == []


@pytest.mark.parametrize("kernels", [(), ("cpu",)])
def test_between_steps_a_graph_keeps_no_adapter_in_memory(toy_model, tmp_path, kernels):
    adapters = {"a": write_adapter(tmp_path / "a", toy_model, rank=4)}
    engine, store = lora_engine(toy_model, adapters, beside=kernels, graphs="full")
    run_requests(engine, under(store, decoding(2), ["a", "a"]))
    recorded = [each for key, each in engine.runner.library.recorded.items() if key.lora_segments]
    assert recorded
    for each in recorded:
        assert list(each.lora.segments) == []
        assert all(list(adapters.segments) == [] for adapters in each.lora.loaded.values())
