"""On the device: graphs, captured and replayed, beside eager steps: bits, counts, addresses that stay, and failures."""

from __future__ import annotations

import random

import pytest
from sizes import DRY, NUM_REQUESTS

from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.hookspecs import hookimpl
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import accepted, make_engine, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request, varied_requests
from specserve_workbench.testing.toy import write_checkpoint

pytestmark = pytest.mark.gpu
PAGED = dict.fromkeys(("prefill", "decode", "verify"), "triton_paged")
COMMON = {"device": "cuda", "dtype": "bfloat16"}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("model"), architecture="qwen3", max_position_embeddings=1024)


def engine(model, graphs, drafter=None, *, paged=True, **options):
    from cuda_references import hybrid_plugin

    hybrid = {"extra": {"hybrid_attn": hybrid_plugin()}, "plugin_options": {"hybrid_attn": PAGED}}
    attention = hybrid if paged else {"attention": "sdpa"}
    return make_engine(model, drafter, graphs=graphs, **COMMON, **attention, **options).engine


def steps_of(run):
    """How many steps ran in each mode; their sum is all of them."""
    assert sum(run.metrics.graph_steps.values()) == run.metrics.num_steps
    assert not any("raised" in reason for _, reason in run.metrics.graph_steps), run.metrics.graph_steps
    count = dict.fromkeys(("full", "piecewise", "none"), 0)
    for (mode, _), number in run.metrics.graph_steps.items():
        count[mode] += number
    return count


def requests_for(count=NUM_REQUESTS):
    scored = [toy_request("p", range(1, 30), max_tokens=6, prompt_logprobs=2, logprobs=2)]
    return [*varied_requests(count), *scored]


@pytest.mark.parametrize("paged", [True, False], ids=["triton_paged", "sdpa"])
@pytest.mark.parametrize("drafts", [False, True], ids=["plain", "trees"])
def test_replayed_steps_have_the_bits_of_eager_ones(model, paged, drafts):
    plain = run_requests(engine(model, "none", paged=paged), requests_for())
    assert steps_of(plain)["none"] == plain.metrics.num_steps

    def drafter():
        tokens = plain.tokens()
        return NoisyDrafter(tokens, p=0.7, max_width=6, vocab_size=TOY_VOCAB) if drafts else None

    for mode in ("piecewise", "full"):
        found = run_requests(engine(model, mode, drafter(), paged=paged), requests_for())
        assert found.decided() == plain.decided(), mode
        count = steps_of(found)
        assert count["none"] == 0, found.metrics.graph_steps
        assert count["piecewise"] > 0
        assert (count["full"] > 0) == (mode == "full" and paged), found.metrics.graph_steps
        if drafts:
            assert accepted(found)[0] > 0


def test_adapters_are_data_of_a_graph(tmp_path):
    pytest.importorskip("specserve_lora")
    from cuda_references import hybrid_plugin

    from toy_adapters import lora_engine, under, write_adapters

    model = write_checkpoint(tmp_path / "model")
    adapters = write_adapters(tmp_path / "adapters", model, 6)
    requests = varied_requests(NUM_REQUESTS)
    names = [[None, *adapters][i % 7] for i in range(len(requests))]

    def run(graphs):
        made, store = lora_engine(
            model, adapters, extra={"hybrid_attn": hybrid_plugin()}, plugin_options={"hybrid_attn": PAGED},
            allow_undeclared=True, graphs=graphs, **COMMON,
        )  # fmt: skip
        return run_requests(made, under(store, requests, names)), made.runner

    plain, _ = run("none")
    for graphs in ("piecewise", "full"):
        recorded, runner = run(graphs)
        assert recorded.decided() == plain.decided(), graphs
        count = steps_of(recorded)
        assert count["none"] == 0, recorded.metrics.graph_steps
        assert (count["full"] > 0) == (graphs == "full")
        assert any(key.lora_segments > 2 for key in runner.library.recorded)


@pytest.mark.parametrize("kind", ["eagle3"] if DRY else ["standalone", "eagle", "eagle3", "mtp"])
@pytest.mark.parametrize("paged", [True, False], ids=["triton_paged", "sdpa"])
def test_draft_models_have_graphs_of_their_own(tmp_path, paged, kind):
    pytest.importorskip("specserve_eagle")
    from cuda_references import hybrid_plugin
    from eagle_engines import eagle_engine, write_draft, write_target

    target = write_target(tmp_path / "target")
    draft = write_draft(tmp_path / "draft", kind, target)
    requests = varied_requests(NUM_REQUESTS // 2, vocab_size=64)
    options = {"settings": {"steps": 3, "topk": 2}, "allow_undeclared": True, **COMMON}

    def run(graphs):
        hybrid = {"extra": {"hybrid_attn": hybrid_plugin()}, "plugin_options": {"hybrid_attn": PAGED}}
        attention = hybrid if paged else {"attention": "sdpa"}
        return run_requests(eagle_engine(target, draft, graphs=graphs, **options, **attention), requests)

    runs = {graphs: run(graphs) for graphs in ("none", "piecewise", "full")}
    for graphs, found in runs.items():
        assert found.decided() == runs["none"].decided(), graphs
        assert accepted(found) == accepted(runs["none"]), graphs
        modes = {mode for mode, _ in found.metrics.graph_draft_passes}
        assert modes == {"none": set(), "piecewise": {"piecewise"}, "full": {"full" if paged else "piecewise"}}[graphs]
        assert not any("raised" in reason for _, reason in found.metrics.graph_draft_passes)


def test_passes_of_the_target_that_draft_are_captured_with_the_draft_adapter(model, tmp_path):
    pytest.importorskip("specserve_lora")
    from cuda_references import hybrid_plugin
    from uno_engines import Witness, uno_engine

    from draft_adapters import write_draft_adapter

    adapter = write_draft_adapter(tmp_path / "adapter", model)
    requests = varied_requests(NUM_REQUESTS // 2)
    found = {}
    for graphs in ("none", "piecewise", "full"):
        tables = {"plugin_options": {"hybrid_attn": PAGED}, "extra": {"hybrid_attn": hybrid_plugin()}}
        made = uno_engine(
            model, adapter, planner=Witness(), graphs=graphs, allow_undeclared=True, no_plugins=("adaptive",),
            **COMMON, **tables,
        )  # fmt: skip
        decided = run_requests(made, requests).decided()
        assert not made.metrics.drafter_faults
        found[graphs] = decided, made.planner.drafts
        passes = made.metrics.graph_draft_passes
        assert {mode for mode, _ in passes} == ({graphs} if graphs != "none" else set()), passes
        assert found[graphs] == found["none"], graphs
    assert len(found["none"][1]) > NUM_REQUESTS


def test_random_widths_move_nothing_that_a_graph_has_recorded(model):
    """Steps of other engines' sizes in between: larger buffers of eager passes are not those of graphs."""
    rng = random.Random(3)
    made = engine(model, "full", graph_buckets=(1, 2, 4, 8, 16), max_num_batched_tokens=64)
    eager = engine(model, "none", max_num_batched_tokens=64)
    memory = made.runner.memory
    addresses = None
    for turn in range(4 if DRY else 40):
        requests = [
            toy_request(f"{turn}-{i}", [rng.randrange(60) for _ in range(rng.randint(1, 90))], max_tokens=9, seed=i)
            for i in range(rng.randint(1, 7))
        ]
        assert run_requests(made, requests).tokens() == run_requests(eager, requests).tokens()
        now = [tensor.data_ptr() for tensor in (memory.rows.memory, memory.x, memory.logits, memory.attended)]
        addresses = addresses or now
        assert now == addresses
    modes = {mode for mode, _ in made.metrics.graph_steps}
    assert modes == {"full", "piecewise", "none"}, "prompts of more than 16 rows run eagerly"


class Reader:
    """A kernel set's plugin whose product reads a number on the host: it cannot be captured."""

    @hookimpl
    def adapt_model(self, model):
        kernels = model.kernels
        name = next(name for name in model.projections if "qkv" in name)

        def linear(x, weight, bias):
            assert bool(x.isfinite().all())
            return kernels.linear(x, weight, bias)

        model.projections[name].set_kernel(linear, "reader")


def test_a_capture_that_fails_is_a_reason_and_nothing_else(model):
    extra = {"reader": InProcessPlugin(Reader(), PluginDeclaration(name="reader", provides={"server.routes": "none"}))}
    requests = requests_for(6)

    def run(graphs):
        return run_requests(make_engine(model, extra=extra, graphs=graphs, **COMMON).engine, requests)

    plain, failing = run("none"), run("full")
    assert failing.decided() == plain.decided()
    assert {mode for mode, _ in failing.metrics.graph_steps} == {"none"}
    assert any("its recording raised" in reason for _, reason in failing.metrics.graph_steps)
