"""Losslessness with graphs: alone and with every drafter, adapters and the hybrid backend, each with its replays."""

from __future__ import annotations

import pytest
from eagle_engines import KINDS, TREE_KINDS, drafter_of, eagle_options, with_planner, write_draft, write_target
from graph_runs import assert_same

from covering import covering
from specserve.protocols import BlockPass
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve_cpu.kernels import CpuKernels
from specserve_workbench.testing.engines import accepted, make_engine, run_requests
from specserve_workbench.testing.requests import toy_request, varied_requests
from toy_adapters import lora_of, lora_options, under, write_adapters

VOCAB = 64
HYBRID = {"hybrid_attn": {"prefill": "sdpa", "decode": "cpu_paged", "verify": "cpu_paged"}}


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def drafts(target, tmp_path_factory):
    path = tmp_path_factory.mktemp("drafts")
    return {kind: write_draft(path / kind, kind, target) for kind in KINDS}


@pytest.fixture(scope="module")
def adapters(target, tmp_path_factory):
    return write_adapters(tmp_path_factory.mktemp("adapters"), target, 6)


def requests_for(count):
    """Some repeat themselves, so that there is something to draft; some ask for the prompt's log-probabilities."""
    repetitive = [toy_request(f"r{i}", (5, 6, 6), max_tokens=24, logit_bias={6: 12.0 + i}, seed=i) for i in range(5)]
    scored = [toy_request(f"p{i}", range(1, 30 + i), max_tokens=6, prompt_logprobs=2, logprobs=2) for i in range(2)]
    return [*varied_requests(count, vocab_size=VOCAB), *repetitive, *scored]


def engines(target, *, plugins=(), options=None, verify=True, **fields):
    def make(graphs):
        planner = FixedWidthPlanner(32) if verify else None
        plan = {"planner": planner, "plugins": ("cpu", *plugins), "plugin_options": options or {}}
        return make_engine(target, graphs=graphs, **plan, **fields).engine

    return make


def pinning(engine, adapters, count=14):
    """The engine with every adapter pinned, and requests under them in turn. Their namespaces are hashes of the files:
    the same in every engine."""
    requests, names = requests_for(count), [None, *adapters]
    return engine, under(lora_of(engine), requests, [names[i % len(names)] for i in range(len(requests))])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("fields", [{}, {"max_num_seqs": 1}, {"max_num_batched_tokens": 24, "max_num_seqs": 5}])
def test_without_plugins_every_step_is_replayed(target, fields, dtype):
    assert_same(engines(target, dtype=dtype, verify=False, **fields), requests_for(14))


def test_with_ngram(target):
    runs = assert_same(engines(target, plugins=("ngram",)), requests_for(14))
    assert runs["full"].metrics.num_accepted_tokens > 20


def test_with_the_hybrid_backend(target):
    assert_same(engines(target, plugins=("hybrid_attn", "ngram"), options=HYBRID), requests_for(14))


@pytest.mark.parametrize("beside", [(), ("ngram",), ("hybrid_attn", "ngram")])
def test_with_adapters(target, adapters, beside):
    options = lora_options(adapters, max_loaded=64) | (HYBRID if "hybrid_attn" in beside else {})
    make = engines(target, plugins=("lora", *beside), options=options)
    assert_same(lambda graphs: pinning(make(graphs), adapters)[0], pinning(make("none"), adapters)[1])


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("standalone", {}), ("eagle", {"topk": 3}), ("eagle3", {"topk": 2}), ("mtp", {}), ("peagle", {})],
)
def test_with_each_head(target, drafts, kind, settings):
    chosen = eagle_options(drafts[kind], steps=3, **settings)

    def make(graphs):
        engine = make_engine(
            target, plugins=("cpu", *chosen["plugins"]), plugin_options=chosen["plugin_options"],
            graphs=graphs,
        ).engine  # fmt: skip
        return with_planner(engine, FixedWidthPlanner(32))

    runs = assert_same(make, requests_for(12))
    assert runs["full"].metrics.num_accepted_tokens > 10


@covering(kind=(*TREE_KINDS, "peagle"), attention=["sdpa", "cpu_paged"])
def test_passes_of_draft_models_have_graphs_of_their_own(target, drafts, kind, attention, monkeypatch):
    """Piece by piece: a kernel set that computes a pass in one call leaves nothing to record, and that is counted."""
    monkeypatch.setattr(CpuKernels, "fuse_draft", lambda *_: None)
    chosen = eagle_options(drafts[kind], steps=3, topk=2 if kind in TREE_KINDS else 1)
    chosen["plugins"] += () if attention == "sdpa" else ("cpu",)
    uses = {}

    def run(graphs):
        engine = with_planner(make_engine(target, graphs=graphs, **chosen).engine, FixedWidthPlanner(32))
        found = run_requests(engine, requests_for(8))
        uses[graphs] = dict(found.metrics.graph_draft_passes)
        return found.decided(), accepted(found)

    assert run("none") == run("piecewise") == run("full")
    count = sum(uses["piecewise"].values())
    assert uses["none"] == {}
    assert uses["piecewise"] == {("piecewise", ""): count}
    full = ("full", "") if attention == "cpu_paged" else ("piecewise", "attention sdpa has no full graphs")
    assert uses["full"] == {full: count}


class Calls(BlockPass):
    """Counts passes over committed tokens alone, and those that draft."""

    def __init__(self, passes):
        self.passes, self.num_steps, self.num_drafts = passes, 0, 0

    def step(self, *arguments, from_target):
        self.num_steps += 1
        return self.passes.step(*arguments, from_target=from_target)

    def draft(self, *arguments):
        self.num_drafts += 1
        return self.passes.draft(*arguments)

    def rows(self, *arguments):
        self.num_drafts += 1
        return self.passes.rows(*arguments)


@pytest.mark.parametrize(("attention", "topk"), [("sdpa", 1), ("cpu_paged", 1), ("cpu_paged", 3)])
def test_passes_of_block_heads_are_counted_with_the_reason(target, drafts, attention, topk):
    chosen = eagle_options(drafts["dspark"], steps=3, topk=topk)
    chosen["plugins"] += () if attention == "sdpa" else ("cpu",)

    passes = {}

    def run(graphs):
        engine = with_planner(make_engine(target, graphs=graphs, **chosen).engine, FixedWidthPlanner(32))
        drafter = drafter_of(engine)
        drafter.passes = drafter.runtime.passes = passes[graphs] = Calls(drafter.passes)
        return run_requests(engine, requests_for(8))

    plain, recorded = run("none"), run("full")
    assert plain.decided() == recorded.decided()
    assert accepted(plain) == accepted(recorded)
    assert not plain.metrics.graph_draft_passes
    (key,) = recorded.metrics.graph_draft_passes
    assert key == ("none", "passes of block heads are not recorded")
    calls = passes["full"]
    assert recorded.metrics.graph_draft_passes[key] == calls.num_steps + calls.num_drafts
    assert calls.num_steps > 0
    assert calls.num_drafts > 20


def test_a_fused_pass_of_a_draft_model_is_counted_with_the_reason(target, drafts):
    chosen = eagle_options(drafts["eagle3"], steps=3)
    engine = make_engine(target, graphs="full", plugins=("cpu", *chosen.pop("plugins")), **chosen).engine
    metrics = run_requests(with_planner(engine, FixedWidthPlanner(32)), requests_for(8)).metrics
    (((mode, reason), count),) = metrics.graph_draft_passes.items()
    assert (mode, reason.split(" ", 2)[2]) == ("none", "compute passes of a draft model in one call")
    assert count > metrics.num_steps > 10


def test_with_everything(target, drafts, adapters):
    chosen = eagle_options(drafts["eagle3"], steps=3, topk=2)["plugin_options"]
    options = chosen | HYBRID | lora_options(adapters, max_loaded=64)

    def make(graphs):
        engine = make_engine(
            target, plugins=("cpu", "eagle", "ngram", "lora", "hybrid_attn"), plugin_options=options,
            graphs=graphs,
        ).engine  # fmt: skip
        return pinning(with_planner(engine, FixedWidthPlanner(32)), adapters)

    runs = assert_same(lambda graphs: make(graphs)[0], make("none")[1], timed=True)
    assert runs["full"].metrics.num_accepted_tokens > 10
