"""Layers without attention on CUDA: what graphs capture of them, and that replays give the tokens of eager steps.

Run by `test_dry_run` under its pytest plugin, not by itself.
"""

from __future__ import annotations

from collections import Counter

import cuda_graphs
import pytest
from cuda_references import hybrid_plugin

from specserve_cuda.launch import Launch
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import make_engine, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request
from specserve_workbench.testing.toy import write_checkpoint

EVERYWHERE = dict.fromkeys(("prefill", "decode", "verify"), "triton_paged")
FAMILIES = ("lfm2", "lfm3", "qwen3_5_text")
KERNELS = {
    "lfm2": {"keep_product_kernel": 1, "short_conv_kernel": 1},
    "lfm3": {"keep_product_kernel": 1, "short_conv_kernel": 1, "gate_kernel": 1},
    "qwen3_5_text": {
        "delta_gates_kernel": 1, "delta_conv_kernel": 1, "delta_recurrence_kernel": 1, "gated_norm_kernel": 1,
        "gate_kernel": 1,
    },
}  # fmt: skip
"""Launches of a step: one layer of either kind."""


@pytest.fixture(scope="module", params=FAMILIES)
def model(request, tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("model") / request.param, architecture=request.param)


def engine(model, graphs, drafter=None, dtype="bfloat16", **options):
    hybrid = {"extra": {"hybrid_attn": hybrid_plugin()}, "plugin_options": {"hybrid_attn": EVERYWHERE}}
    return make_engine(model, drafter, device="cuda", dtype=dtype, graphs=graphs, **hybrid, **options).engine


def requests_of(count):
    """Short, since a twin takes a token at a time; greedy and sampled."""
    return [
        toy_request(str(i), range(2, 5 + 5 * i), max_tokens=9, ignore_eos=True, temperature=i % 2, seed=i)
        for i in range(count)
    ]


def test_replays_give_the_tokens_of_eager_steps_with_trees_and_without(model):
    requests = requests_of(3)
    expected = run_requests(engine(model, "none"), requests)
    for graphs, drafts in (("none", True), ("full", False), ("full", True), ("piecewise", True)):
        drafter = NoisyDrafter(expected.tokens(), p=0.8, max_width=6, vocab_size=TOY_VOCAB) if drafts else None
        served = engine(model, graphs, drafter)
        assert run_requests(served, requests).decided() == expected.decided(), (graphs, drafts)
        assert (served.metrics.num_accepted_tokens > 5) == drafts
        counts = Counter()
        for (mode, reason), count in served.metrics.graph_steps.items():
            assert not reason or graphs == "none", reason
            counts[mode] += count
        assert counts[graphs] >= 3


def test_no_step_would_need_another_binary_than_the_first_launches(model, monkeypatch):
    """Chunks of prompts, single rows and trees; each launch for itself, as it is made on a device."""

    def dispatch(launch, x, y, *arguments):
        before = launch.compiled
        launch.first(x, y, arguments)
        dispatched.add(launch.kernel.__name__)
        if before is not None and launch.compiled is not before:
            others.append(launch.kernel.__name__)  # what is raised here would be the engine's fault, and be caught

    dispatched, others = set(), []
    monkeypatch.setattr(Launch, "__call__", dispatch)
    for graphs in ("none", "full"):
        drafter = NoisyDrafter({str(i): [7] * 9 for i in range(3)}, p=0.8, max_width=6, vocab_size=TOY_VOCAB)
        run_requests(engine(model, graphs, drafter, max_num_batched_tokens=16), requests_of(3))
    assert dispatched >= KERNELS[model.name].keys()
    assert others == []


def test_a_full_graph_holds_one_launch_of_each_mixers_kernels(model):
    before = len(cuda_graphs.GRAPHS)
    run_requests(engine(model, "full"), requests_of(2))
    made = cuda_graphs.GRAPHS[before:]
    assert not any(graph.is_invalid for graph in made)
    launches = [Counter(name for name, _ in graph.operations if name in KERNELS[model.name]) for graph in made]
    assert KERNELS[model.name] in launches
