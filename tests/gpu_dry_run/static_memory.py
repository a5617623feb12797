"""Padded steps over memory that stays. Run by `test_dry_run` under its pytest plugin, not by itself."""

from __future__ import annotations

import random

import pytest
import torch
from cuda_references import hybrid_plugin

from specserve.batch.builder import BatchBuilder
from specserve.batch.request import Request
from specserve.batch.span import Span
from specserve.batch.static_rows import PADDING_SLOT, StaticRows
from specserve.testing.engines import make_engine
from specserve.testing.requests import toy_request
from specserve.testing.toy import write_checkpoint
from specserve.types import Draft
from specserve_hybrid_attn.cuda.paged_plan import lay_out
from specserve_hybrid_attn.cuda.plan_buffers import PlanBuffers, PlanSizes

EVERYWHERE = dict.fromkeys(("prefill", "decode", "verify"), "triton_paged")
BUCKETS = (4, 16, 64)
SIZES = PlanSizes(tiles=65, items=80, block_ids=160, nodes=64, depth=8)
TREE = (-1, 0, 0, 1, -1, 4)


class Steps:
    """Random decode and verify steps over one engine's pass, as they are and padded."""

    def __init__(self, model, seed):
        options = {"extra": {"hybrid_attn": hybrid_plugin()}, "plugin_options": {"hybrid_attn": EVERYWHERE}}
        engine = make_engine(model, device="cuda", dtype="bfloat16", **options).engine
        self.runner, self.cache = engine.runner, engine.parts.cache
        self.attention, self.random = engine.runner.attention, random.Random(seed)
        self.builder = BatchBuilder(16, torch.device("cuda"))
        self.rows, self.plans = StaticRows(BUCKETS[-1], torch.device("cuda")), PlanBuffers(SIZES, torch.device("cuda"))

    def batch(self):
        spans, block = [], 0
        for i in range(self.random.randint(1, 6)):
            start, parents = self.random.randint(0, 90), self.random.choice([None, (-1, 0, 1), TREE])
            drafted = len(parents or ())
            known = self.random.randint(1, 3)
            length = start + known
            request = Request.admit(
                toy_request(str(i), [j % 300 for j in range(length)]), seed=0, arrival=0.0, order=i, max_len=400
            )
            request.blocks = list(range(block, block := block + -(-(length + drafted) // 16)))
            draft = Draft(tokens=tuple(range(7, 7 + drafted)), parents=parents) if drafted else None
            spans.append(Span(request, start, known + drafted, drafted, drafted + 1, draft))
            block %= 64
        return self.builder.build(spans)

    def plain(self, batch):
        return self.passed(batch, self.attention.plan(batch), poison=False)

    def padded(self, batch):
        rows = next(bucket for bucket in BUCKETS if bucket >= batch.num_rows)
        fixed = self.rows.load(batch, rows)
        plan = lay_out(batch, self.attention.config, self.attention.kernels.bytes_per_item, SIZES.depth)
        return self.passed(fixed, self.plans.load(plan, fixed, self.attention.trees), poison=True)

    def passed(self, batch, plan, poison):
        passes = self.runner.passes
        x = passes.embed(batch)
        if poison:
            x[batch.num_rows :] = float("nan")
        return passes.logits(passes.layers(x, batch, plan), batch)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("model"), architecture="qwen3", max_position_embeddings=512)


@torch.inference_mode()
def test_padding_changes_no_bit_of_a_row_or_of_the_cache(model):
    steps = Steps(model, 1)
    for _ in range(15):
        batch = steps.batch()
        steps.cache.data.normal_(generator=torch.Generator().manual_seed(1))
        expected = steps.plain(batch)
        written = steps.cache.data.clone()
        steps.cache.data.normal_(generator=torch.Generator().manual_seed(1))
        got = steps.padded(batch)
        assert got.shape == expected.shape
        assert torch.equal(got, expected)
        assert torch.equal(steps.cache.data, written)


@torch.inference_mode()
def test_widths_and_trees_move_nothing(stub, model):
    """500 steps of random widths: the launches of a bucket get the same addresses every time, of results as well."""
    steps, seen = Steps(model, 2), {}
    for step in range(500):
        batch = steps.batch()
        rows = next(bucket for bucket in BUCKETS if bucket >= batch.num_rows)
        fixed = steps.rows.load(batch, rows)
        plan = lay_out(batch, steps.attention.config, steps.attention.kernels.bytes_per_item, SIZES.depth)
        loaded = steps.plans.load(plan, fixed, steps.attention.trees)
        tensors = (fixed.input_ids, fixed.positions, fixed.slots, *loaded[1:5], steps.attention.kernels.workspace.out)
        if step % 50 == 0:
            steps.padded(batch)
            steps.plain(steps.batch())
        if step > 0:
            addresses = [(tensor.data_ptr(), tensor.shape) for tensor in tensors]
            assert seen.setdefault(rows, addresses) == addresses, step
        assert loaded.launches == steps.plans.launches
    assert set(seen) == set(BUCKETS)


def test_a_plan_that_does_not_fit_says_so(model):
    steps = Steps(model, 3)
    batch = steps.batch()
    plan = lay_out(batch, steps.attention.config, steps.attention.kernels.bytes_per_item, SIZES.depth)
    assert SIZES.holds(plan)
    for changes in ({"tiles": len(plan.rows)}, {"items": 0}, {"block_ids": 0}):
        assert not SIZES._replace(**changes).holds(plan)
    tree = steps.builder.build([tree_span()])
    plan = lay_out(tree, steps.attention.config, steps.attention.kernels.bytes_per_item, SIZES.depth)
    assert not SIZES._replace(nodes=5).holds(plan)
    assert not SIZES._replace(depth=2).holds(plan)
    assert SIZES.holds(plan)


def tree_span():
    request = Request.admit(toy_request("t", range(20)), seed=0, arrival=0.0, order=0, max_len=400)
    request.blocks = [3, 1]
    return Span(request, 19, 7, 6, 7, Draft(tokens=tuple(range(6)), parents=TREE))


def test_padding_goes_to_no_slot():
    rows, batch = StaticRows(8, torch.device("cpu")), BatchBuilder(16, torch.device("cpu")).build([tree_span()])
    padded = rows.load(batch, 8)
    assert padded.slots.tolist() == [*batch.slots.tolist(), PADDING_SLOT]
    assert padded.positions.tolist() == [*batch.positions.tolist(), 0]
    assert padded.num_rows == 7
    with pytest.raises(AssertionError):
        rows.load(batch, 4)
