"""Layers without attention in graphs: short convolutions and gated delta nets give the same tokens with and without
them, whatever is drafted, preempted or found in the prefix cache."""

from __future__ import annotations

import msgspec
import pytest
import torch
from cuda_references import reference_plugin
from graph_runs import assert_same, steps_of

from specserve.kv.cache import KVCache
from specserve.models.read_config import read_config
from specserve.models.short_conv import ShortConv
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve_graphs.reference_recorder import ReferenceRecorder
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import accepted, make_engine, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request, varied_requests
from specserve_workbench.testing.toy import write_checkpoint
from toy_adapters import lora_of, lora_options, under, write_adapter

FAMILIES = ("lfm2", "lfm3", "qwen3_5_text")
NATIVE = {"plugins": ("cpu",)}
TORCH = {"attention": "triton_paged"}
"""The kernels of torch, with the only attention that has full graphs beside the native one."""
TWO_RANKS = (("a", 4), ("b", 9))
each_family = pytest.mark.parametrize("model", FAMILIES, indirect=True)
each_kernel_set = pytest.mark.parametrize("kernels", [NATIVE, TORCH], ids=["native", "torch"])


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {name: write_checkpoint(folder / name, architecture=name) for name in FAMILIES}


@pytest.fixture
def model(models, request):
    return models[request.param]


def engine(model, kernels, graphs, drafter=None, **fields):
    extra = {"extra": {"cuda_references": reference_plugin()}} if kernels is TORCH else {}
    return make_engine(model, drafter, graphs=graphs, **kernels, **extra, **fields).engine


def drafted(model, kernels, requests, **fields):
    """`assert_same` with trees whose branches are right by chance, the same in every engine."""
    tokens = run_requests(engine(model, kernels, "none", **fields), requests).tokens()

    def make(graphs):
        drafter = NoisyDrafter(tokens, p=0.8, max_width=6, vocab_size=TOY_VOCAB)
        return engine(model, kernels, graphs, drafter, **fields)

    return assert_same(make, requests)["full"]


def repeating(count):
    return [toy_request(f"r{i}", (5, 6, 6), max_tokens=24, logit_bias={6: 20.0 + i}, seed=i) for i in range(count)]


@each_family
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("fields", [{}, {"max_num_seqs": 1}, {"max_num_batched_tokens": 24, "max_num_seqs": 5}])
def test_every_step_is_replayed_and_gives_the_same(model, dtype, fields):
    assert_same(lambda graphs: engine(model, NATIVE, graphs, dtype=dtype, **fields), varied_requests(10))


@each_family
@each_kernel_set
def test_with_draft_trees(model, kernels):
    right, tried = accepted(drafted(model, kernels, varied_requests(3 if kernels is TORCH else 12)))
    assert 0.2 * tried < right < tried


@each_family
def test_with_chains_of_ngram(model):
    fields = {"planner": FixedWidthPlanner(32), "dtype": "bfloat16"}
    kernels = {"plugins": ("cpu", "ngram")}
    requests = [*repeating(5), *varied_requests(8)]
    runs = assert_same(lambda graphs: engine(model, kernels, graphs, **fields), requests)
    assert runs["full"].metrics.num_accepted_tokens > 20


@each_family
def test_with_preemption(model):
    requests = [toy_request(str(i), range(1, 12 + 3 * i), max_tokens=30, temperature=i % 2, seed=i) for i in range(14)]
    run = drafted(model, NATIVE, requests, max_num_seqs=14, kv_memory=str(room_for(model, 24)))
    assert run.metrics.num_preemptions > 0


def room_for(model, blocks):
    """In bytes."""
    config = read_config(model)
    keys = KVCache.bytes_per_block(
        len(config.attention_layers), 16, config.num_kv_heads, config.head_dim, torch.float32
    )
    return blocks * (keys + 16 * sum(config.token_widths) * torch.float32.itemsize)


@each_family
def test_with_cached_prefixes(model):
    """The second half of the requests begins behind blocks, and states, of the first."""
    first = [toy_request(f"a{i}", range(1, 70 + i), max_tokens=6, seed=i) for i in range(3)]
    second = [msgspec.structs.replace(each, request_id=f"b{each.request_id}") for each in first]
    found = {}
    for graphs in ("none", "piecewise", "full"):
        served = engine(model, NATIVE, graphs)
        runs = [run_requests(served, requests) for requests in (first, second)]
        found[graphs] = [run.decided() for run in runs]
        assert served.metrics.prompt_tokens_cached > 3 * 48
    assert found["none"] == found["piecewise"] == found["full"]


@each_family
def test_padding_of_nan_changes_nothing_and_keeps_nothing(model):
    """What is kept of tokens and the states of requests are those of eager steps, in every slot."""
    requests = varied_requests(8)
    served = {graphs: engine(model, NATIVE, graphs, graph_buckets=(7, 40, 64)) for graphs in ("none", "full")}
    runner, padded = served["full"].runner, []
    forward = runner.forward

    def watched(batch):
        for passes in runner.full_passes.values():
            if not hasattr(passes, "unpoisoned"):
                passes.unpoisoned = passes.embed
                passes.embed = lambda rows, embed=passes.unpoisoned: poisoned(embed(rows), batch_rows)
        batch_rows[0] = batch.num_rows
        output = forward(batch)
        if output.graph.mode == "full":
            padded.append(runner.settings.rows.holding(batch.num_rows) - batch.num_rows)
        return output

    batch_rows = [0]
    runner.forward = watched
    runs = {graphs: run_requests(each, requests).decided() for graphs, each in served.items()}
    assert runs["full"] == runs["none"]
    assert sum(count > 0 for count in padded) > 5
    kept = {graphs: memory_of(each.runner.model) for graphs, each in served.items()}
    assert kept["full"]
    assert all(torch.equal(a, b) for a, b in zip(kept["full"], kept["none"], strict=True))
    assert all(tensor.isfinite().all() for tensor in kept["full"])


def poisoned(x, batch_rows):
    x[batch_rows[0] :] = float("nan")
    return x


def memory_of(model):
    return [*model.token_states, *(tensor for layer in model.layer_states for tensor in layer)]


@each_family
def test_with_adapters_of_the_mixers_maps(model, tmp_path):
    """Every other request is under one; drafts of ngram too."""
    maps = ("out_proj", "q_proj") if model.name == "qwen3_5_text" else ("in_proj", "down_proj")
    adapters = {
        name: write_adapter(tmp_path / name, model, targets=maps, rank=rank, seed=rank) for name, rank in TWO_RANKS
    }
    kernels = {"plugins": ("cpu", "ngram", "lora"), "plugin_options": lora_options(adapters, max_loaded=4)}
    requests = [*repeating(4), *varied_requests(6)]

    def make(graphs):
        return engine(model, kernels, graphs, planner=FixedWidthPlanner(32))

    names = [(None, "a", "b")[i % 3] for i in range(len(requests))]
    adapted = under(lora_of(make("none")), requests, names)

    def pinned(graphs):
        served = make(graphs)
        under(lora_of(served), requests, names)
        return served

    runs = assert_same(pinned, adapted)
    assert runs["full"].metrics.num_accepted_tokens > 10


def test_an_lfm2_as_draft_model_has_full_graphs_too(models):
    model, uses, found = models["lfm2"], {}, {}
    options = {"eagle": {"model": str(model), "steps": 3, "topk": 2}}
    for graphs in ("none", "piecewise", "full"):
        served = engine(
            model, {"plugins": ("cpu", "eagle")}, graphs, planner=FixedWidthPlanner(32), plugin_options=options
        )
        run = run_requests(served, varied_requests(8))
        uses[graphs], found[graphs] = dict(run.metrics.graph_draft_passes), (run.decided(), accepted(run))
    assert found["none"] == found["piecewise"] == found["full"]
    assert uses["full"].pop(("full", "")) == uses["piecewise"].pop(("piecewise", "")) > 10
    assert uses["full"] == uses["piecewise"], "passes with more rows than any bucket"


# --- what is not recorded in full -------------------------------------------------------------------------------


def reasons_without(model, kernels=NATIVE):
    """Why its decode steps ran from piecewise graphs, and none from a full one; the tokens are those of eager steps."""
    requests = varied_requests(4)
    served = engine(model, kernels, "full")
    assert run_requests(served, requests).decided() == run_requests(engine(model, kernels, "none"), requests).decided()
    steps = steps_of(served.metrics)
    assert (steps.full, steps.none) == (0, 0)
    assert steps.piecewise > 10
    return steps.reasons


def test_a_mixer_that_takes_no_padding_is_recorded_in_pieces(models, monkeypatch):
    monkeypatch.setattr(ShortConv, "takes_padding", False)
    assert reasons_without(models["lfm2"]) == {"mixer ShortConv takes no padding, and is recorded in pieces only"}


def test_a_recorder_that_does_not_call_again_needs_kernels_that_load_runs(models, monkeypatch):
    """Python that walks over runs would walk over those of the recording."""
    monkeypatch.setattr(ReferenceRecorder, "calls_again", False)
    (reason,) = reasons_without(models["qwen3_5_text"])
    assert reason.startswith("kernels cpu-")
    assert reason.endswith(" record recurrent layers in pieces only")


def test_runs_that_do_not_fit_are_computed_in_pieces(models, monkeypatch):
    monkeypatch.setattr("specserve_graphs.mixer_inputs.HostRuns.load", lambda self, runs: "they do not fit")
    assert reasons_without(models["qwen3_5_text"]) == {"they do not fit"}
