"""The promise with the planner: same tokens, log-probabilities and ends in every mode, with every drafter, at widths
that change in every step; and the draft tokens are accepted."""

from __future__ import annotations

import pytest

from covering import covering
from specserve_adaptive.step_costs import StepCosts
from specserve_workbench.testing.engines import make_engine, plain_run, run_requests
from specserve_workbench.testing.requests import toy_request, varied_requests
from toy_adapters import lora_of, lora_options, under, write_adapters

MODES = {
    "ranked": {},
    "throughput": {"objective": "throughput"},
    "latency": {"objective": "latency"},
    "tiers": {"mode": "tiers", "candidates": [1, 3, 8], "warm_up": 1, "interval": 1},
    "static": {"mode": "static", "tokens": 5},
}


def requests_of(count=16):
    repetitive = [toy_request(f"r{i}", (5, 6, 6), max_tokens=40, logit_bias={6: 20.0 + i}, seed=i) for i in range(4)]
    return [*varied_requests(count), *repetitive]


def adaptive_engine(model, *, drafters=("ngram",), mode="ranked", tables=None, **options):
    tables = {"adaptive": {"cost_cache": "none", **MODES[mode]}, **(tables or {})}
    engine = make_engine(model, plugins=(*drafters, "adaptive"), plugin_options=tables, **options).engine
    planner = engine.planner.planner
    if mode not in ("tiers", "static"):
        # of a made-up machine on which drafts pay, so that counts do not depend on this one
        planner.costs = planner.regimes.costs = FixedCosts([1, 64], [1.0, 1.5])
    return engine


class FixedCosts(StepCosts):
    def observe(self, batch, seconds):
        pass


@pytest.mark.usefixtures("each_kernel_set")
@covering(each_kernel_set=["torch", "cpu"], batch_size=[1, 8], indirect=["each_kernel_set"])
def test_every_mode_changes_nothing(toy_model, batch_size):
    requests = requests_of()
    plain = plain_run(toy_model, requests, max_num_seqs=batch_size).decided()
    for mode in MODES:  # the plain run takes longer than they do
        engine = adaptive_engine(toy_model, mode=mode, max_num_seqs=batch_size)
        adaptive = run_requests(engine, requests)
        assert adaptive.decided() == plain, mode
        assert not engine.metrics.faults.counts, mode
        assert engine.metrics.num_accepted_tokens > (0 if mode == "latency" else 20), mode


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_it_changes_nothing_in_half_precision(toy_model, dtype):
    requests = requests_of()
    assert (
        run_requests(adaptive_engine(toy_model, dtype=dtype), requests).decided()
        == plain_run(toy_model, requests, dtype=dtype).decided()
    )


@pytest.mark.parametrize("drafters", [("eagle",), ("ngram", "eagle")])
@pytest.mark.parametrize("mode", ["ranked", "tiers"])
@pytest.mark.parametrize("topk", [1, 3])
def test_it_changes_nothing_with_a_draft_model(toy_model, drafters, mode, topk):
    requests = requests_of()
    eagle = {"model": str(toy_model), "topk": topk}
    engine = adaptive_engine(toy_model, drafters=drafters, mode=mode, tables={"eagle": eagle})
    assert run_requests(engine, requests).decided() == plain_run(toy_model, requests).decided()
    assert not engine.metrics.drafter_faults
    assert not engine.metrics.faults.counts
    assert engine.metrics.num_accepted_tokens > 20


@pytest.mark.parametrize("graphs", ["none", "full"])
def test_it_changes_nothing_under_adapters_with_hybrid_attention_and_graphs(toy_model, tmp_path, graphs):
    requests = requests_of()
    adapters = write_adapters(tmp_path, toy_model, 3)
    names = ["" if i % 4 == 3 else f"a{i % 4}" for i in range(len(requests))]
    tables = lora_options(adapters)

    def decided(engine):
        return run_requests(engine, under(lora_of(engine), requests, names)).decided()

    plain = decided(make_engine(toy_model, plugins=("lora",), plugin_options=tables).engine)
    engine = adaptive_engine(toy_model, drafters=("lora", "hybrid_attn", "ngram"), tables=tables, graphs=graphs)
    assert decided(engine) == plain
    assert engine.metrics.num_accepted_tokens > 20
    if graphs == "full":
        assert sum(n for use, n in engine.metrics.graph_steps.items() if use.mode != "none") > 20


@pytest.mark.parametrize(("drafters", "topk", "depth"), [
    (("eagle",), 1, "FixedDepth"), (("eagle",), 3, "AutoDepth"), (("ngram", "eagle"), 1, "AutoDepth"),
])  # fmt: skip
def test_it_decides_the_depth_of_chains_of_the_only_drafter(toy_model, drafters, topk, depth):
    tables = {"eagle": {"model": str(toy_model), "topk": topk}}
    engine = adaptive_engine(toy_model, drafters=drafters, tables=tables)
    (eagle,) = [guard.drafter for guard in engine.drafting.guards if guard.name == "eagle"]
    assert type(eagle.depth).__name__ == depth
