"""What graphs capture, and what their replays do. Run by `test_dry_run` under its pytest plugin, not by itself."""

from __future__ import annotations

from collections import Counter

import cuda_graphs
import pytest
import torch
from cuda_references import hybrid_plugin

from specserve.batch.builder import BatchBuilder
from specserve.batch.request import Request
from specserve.batch.span import ScheduledSpan
from specserve.types import Draft
from specserve_graphs.static_rows import PADDING_SLOT, StaticRows
from specserve_workbench.testing.engines import make_engine, run_requests
from specserve_workbench.testing.requests import toy_request, varied_requests
from specserve_workbench.testing.toy import write_checkpoint

EVERYWHERE = dict.fromkeys(("prefill", "decode", "verify"), "triton_paged")
TREE = (-1, 0, 0, 1, -1, 4)
CUDA = torch.device("cuda")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("model"), architecture="qwen3", max_position_embeddings=512)


def engine(model, graphs="full", **options):
    hybrid = {"extra": {"hybrid_attn": hybrid_plugin()}, "plugin_options": {"hybrid_attn": EVERYWHERE}}
    return make_engine(model, device="cuda", dtype="bfloat16", graphs=graphs, **hybrid, **options).engine


def request(name, length, blocks):
    made = Request.admit(toy_request(name, range(3, 3 + length)), seed=0, arrival=0.0, order=0, max_len=400)
    made.prompt_len, made.blocks = 3, blocks
    return made


def decode(name, length, block):
    return ScheduledSpan.of(request(name, length, range(block, block + 4)), length - 1, 1, scored=1)


def verify(name, length, block):
    draft = Draft(tokens=tuple(range(6)), parents=TREE)
    return ScheduledSpan.of(request(name, length, range(block, block + 4)), length - 1, 1, scored=7, draft=draft)


def build(*spans):
    return BatchBuilder(16, CUDA).schedule(spans)


def graphs_of(run):
    """Those that were captured while `run` ran."""
    before = len(cuda_graphs.GRAPHS)
    run()
    return cuda_graphs.GRAPHS[before:]


def test_a_full_graph_holds_the_layers_launches_and_little_else(model):
    made = engine(model)
    (graph,) = graphs_of(lambda: made.runner.forward(build(decode("a", 20, 0), verify("b", 30, 4))))
    kernels = Counter(name for name, _ in graph.operations if name.endswith("_kernel"))
    layers = made.runner.model.num_layers
    assert kernels == {
        "linear_kernel": 4 * layers + 1, "add_and_norm_kernel": 2 * layers + 1, "rotate_and_write_kernel": layers,
        "silu_and_multiply_kernel": layers, "attend_kernel": layers, "merge_kernel": layers,
    }  # fmt: skip
    others = Counter(name for name, _ in graph.operations if not name.endswith("_kernel"))
    assert sum(others.values()) <= 6, others


def test_what_a_capture_allocates_is_its_results_and_not_a_workspace(model):
    """Buffers that are kept between calls are there before: what is allocated within belongs to the graphs' pool."""
    made = engine(model)
    (graph,) = graphs_of(lambda: made.runner.forward(build(decode("a", 20, 0))))
    layers = made.runner.model.num_layers
    found = Counter(graph.allocations)
    attention = found.pop("aten.empty_like.default", 0) + found.pop("aten.empty.memory_format", 0)
    assert attention <= layers + 3, "one result of each layer's attention, and those of the head"
    assert sum(found.values()) <= 4, found


def test_a_replay_runs_no_python_of_the_product(model, monkeypatch):
    made, batch = engine(model), build(decode("a", 20, 0), decode("b", 9, 4))
    expected = made.runner.forward(batch).logits.clone()
    key = next(iter(made.runner.library.recorded))
    recorded = made.runner.library.recorded[key]
    for part in (recorded.passes, made.runner.attention, made.runner.kernels):
        for name in ("embed", "layers", "logits", "attend", "forward", "linear"):
            if hasattr(part, name):
                monkeypatch.setattr(part, name, None)
    made.runner.memory.logits.zero_()
    again = made.runner.forward(batch)
    assert again.graph == ("full", "")
    assert torch.equal(again.logits, expected)


def test_no_operation_of_a_capture_reads_the_host(model, monkeypatch):
    """A capture that did would be refused here: the same step, with a read in it."""
    made = engine(model)
    linear = made.runner.model.lm_head._kernel
    made.runner.model.lm_head._kernel = lambda x, *rest: linear(x * float(x.abs().max() > 0), *rest)
    output = made.runner.forward(build(decode("a", 20, 0)))
    assert output.graph.mode == "piecewise", "its head is not recorded, and an invalid capture ends no other"
    assert not cuda_graphs.UNDERWAY
    for rows in (2, 3):
        assert made.runner.forward(build(*(decode(str(i), 9, 4 * i) for i in range(rows)))).graph.mode == "piecewise"
    assert "its recording raised RuntimeError" in output.graph.reason


@torch.inference_mode()
def test_padding_changes_no_bit_of_a_row_or_of_the_cache(model):
    steps = [(decode("a", 20, 0),), (decode("a", 20, 0), verify("b", 30, 4)), (verify("c", 44, 8), verify("d", 17, 12))]
    made, eager = engine(model), engine(model, "none")
    for spans in steps * 2:
        batch = build(*spans)
        for each in (made, eager):
            each.parts.cache.data.normal_(generator=torch.Generator().manual_seed(1))
        expected = eager.runner.forward(batch).logits
        made.runner.memory.logits.fill_(float("nan"))
        made.runner.memory.x.fill_(float("nan"))
        output = made.runner.forward(batch)
        assert output.graph == ("full", "")
        assert torch.equal(output.logits, expected)
        assert torch.equal(made.parts.cache.data, eager.parts.cache.data)


def test_larger_eager_steps_leave_a_graph_what_it_recorded(model):
    """Their buffers grow; those of graphs are others, and stay."""
    made = engine(model, graph_buckets=(1, 2, 4), max_num_batched_tokens=256)
    batch = build(decode("a", 20, 0))
    expected = made.runner.forward(batch).logits.clone()
    run_requests(made, varied_requests(8))
    assert {mode for mode, _ in made.metrics.graph_steps} == {"none", "full"}
    made.parts.cache.data.zero_()
    assert torch.equal(made.runner.forward(batch).logits, engine(model, "none").runner.forward(batch).logits)
    assert expected.shape == (1, made.runner.model.vocab_size)


def test_a_plan_that_does_not_fit_says_so(model, monkeypatch):
    from specserve_cuda.attention import plan_buffers

    for name, value, reason in (
        ("MEMORY", 20, "block ids"), ("MAX_NODES", 5, "draft trees"), ("MAX_DEPTH", 2, "draft trees"),
    ):  # fmt: skip
        made = engine(model)
        made.runner.forward(build(decode("a", 20, 0)))
        monkeypatch.setattr(plan_buffers, name, value)
        output = made.runner.forward(build(verify("b", 30, 4)))
        monkeypatch.undo()
        assert output.graph.mode == "piecewise"
        assert reason in output.graph.reason


def test_padding_goes_to_no_slot():
    rows, batch = (
        StaticRows(8, torch.device("cpu")),
        BatchBuilder(16, torch.device("cpu")).schedule([verify("t", 20, 0)]),
    )
    rows.load(batch.host_rows, 8)
    padded = rows.padded(8, 16)
    assert padded.slots.tolist() == [*batch.slots.tolist(), PADDING_SLOT]
    assert padded.positions.tolist() == [*batch.positions.tolist(), 0]
    with pytest.raises(AssertionError):
        rows.load(batch.host_rows, 4)
