"""Checks of `triton_paged` that need no GPU; every check takes the maker of its kernels.

pytest runs the checks on the reference in torch. As a script, in a process of its own, this file runs them on the
kernels through Triton's interpreter (the variable must be set before Triton is imported) and prints one JSON object:
the name of each check to "ok" or its traceback.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"

import msgspec
import pytest
import torch
from cuda_references import assert_hybrid_is_lossless, reference_plugin
from paged_backends import backend_of, short_splits, tall_tiles, wide_keys
from paged_cases import LEADING, NUM_SLOTS, TREE, Shape, World, attend, dense

from specserve.batch.drafts import paths_of
from specserve.batch.span import ScheduledSpan
from specserve.types import Draft
from specserve_cuda.attention import paged_plan
from specserve_graphs.static_rows import StaticRows
from specserve_workbench.testing.engines import run
from specserve_workbench.testing.requests import toy_request
from specserve_workbench.testing.toy import write_checkpoint
from triton_interpreter import mend_the_interpreter
from triton_runs import outcome

TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}


def assert_near_dense(shape, make, device="cpu", build=backend_of):
    world = World(shape, device)
    spans, backend = world.ragged(), build(world, make)
    q, k, v = world.rows(sum(span.length for span in spans))
    for layer in range(len(shape.windows)):
        got = attend(backend, world, spans, layer, q, k, v)
        assert got.dtype == shape.dtype
        expected = dense(world, spans, layer, q)
        step = TOLERANCE[shape.dtype]
        torch.testing.assert_close(got.double().cpu(), expected, rtol=step, atol=step)


def attended_near(world, spans, make, first_key=0):
    q, k, v = world.rows(sum(span.length for span in spans))
    got = attend(short_splits(world, make), world, spans, 0, q, k, v)
    torch.testing.assert_close(got.double().cpu(), dense(world, spans, 0, q, first_key), rtol=1e-5, atol=1e-5)
    return q, got


# --- of the arithmetic ------------------------------------------------------------------------------------


def check_ragged_rows_are_near_float64(make, device="cpu"):
    assert_near_dense(Shape(64), make, device)
    assert_near_dense(Shape(1), make, device, wide_keys)


def check_heads_of_odd_sizes_and_groups_are_near_float64(make, device="cpu"):
    for heads, kv_heads, head_dim in ((3, 1, 20), (2, 2, 64)):
        assert_near_dense(Shape(16, heads, kv_heads, head_dim), make, device, wide_keys)


def check_windows_are_counted_along_the_path(make, device="cpu"):
    assert_near_dense(Shape(windows=(5, 40)), make, device)


def check_capped_scores_and_sinks_are_near_float64(make, device="cpu"):
    assert_near_dense(Shape(caps=(1.5,)), make, device, wide_keys)
    assert_near_dense(Shape(sinks=True, windows=(None, 40)), make, device, tall_tiles)
    assert_near_dense(Shape(heads=6, kv_heads=2, sinks=True, caps=(50.0, None), windows=(5, None)), make, device)


def check_the_first_key_is_hidden(make, device="cpu"):
    """As draft heads want it, which have no hidden state for the first token."""
    world = World(Shape(), device)
    spans = [world.prompt(1, 20), world.tree(30, TREE), world.prompt(40, 1)]
    world.spec = msgspec.structs.replace(world.spec, first_key=1)
    q, got = attended_near(world, spans, make, first_key=1)
    assert (got.double().cpu() - dense(world, spans, 0, q)).abs().max() > 1e-3


def check_later_nodes_of_a_draft_have_their_bits_alone(make, device="cpu"):
    """As passes of a draft model compute them, level by level: the earlier nodes are in the cache."""
    world, start = World(Shape(), device), 29
    for parents in (TREE, LEADING, None):
        count = 9 if parents is None else len(parents)
        draft = Draft(tokens=tuple(range(count)), parents=parents)
        whole = ScheduledSpan.of(world.request(start, count), start, 0, scored=count, draft=draft)
        q, k, v = world.rows(count)
        backend = short_splits(world, make)
        expected = attend(backend, world, [whole], 0, q, k, v)
        for first in (1, 3, count - 1):
            later = msgspec.structs.replace(whole, length=count - first, drafted=count - first, first_node=first)
            if parents is None:  # as `draft_span` makes it
                later = msgspec.structs.replace(later, start=start + first, first_node=0)
                later = msgspec.structs.replace(later, draft=Draft(tokens=draft.tokens[first:]))
            got = attend(backend, world, [later], 0, q[first:], k[first:], v[first:])
            assert torch.equal(got, expected[first:]), (parents, first)


def check_rows_of_a_block_see_each_other(make, device="cpu"):
    world = World(Shape(), device)
    attended_near(world, [world.prompt(0, 9), world.block(250, 9), world.block(30, 4)], make)


def check_windows_of_rows_that_see_each_other_end_at_their_own_keys(make, device="cpu"):
    world = World(Shape(block_size=4, windows=(6,)), device)
    attended_near(world, [world.prompt(0, 9), world.block(250, 9), world.block(30, 4), world.block(3, 5)], make)


def check_half_precision_is_near_float64(make, device="cpu", dtype=torch.float16):
    assert_near_dense(Shape(dtype=dtype), make, device)


def check_launches_of_few_programs_change_nothing(make, device="cpu"):
    results = []
    for workspace in (paged_plan.WORKSPACE_BYTES, 1):
        world = World(Shape(), device)
        spans, backend = [world.prompt(30, 4), world.tree(30, LEADING)], short_splits(world, make)
        tables = world.rows(sum(span.length for span in spans))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(paged_plan, "WORKSPACE_BYTES", workspace)
            plan = backend.plan(world.builder.schedule(spans))
        results.append(backend.forward(0, *tables, plan))
        assert len(plan.launches) == (1 if workspace > 1 else sum(len(each.tiles) for each in plan.launches))
    assert torch.equal(*results)


# --- of the bits ------------------------------------------------------------------------------------------


def check_padding_reads_no_key_and_stores_no_row(make, device="cpu"):
    """A plan in memory that is larger than it, as captured graphs have it."""
    world = World(Shape(heads=4, kv_heads=2), device)
    spans, backend = [world.tree(40, TREE), world.prompt(0, 7), world.prompt(70, 1)], short_splits(world, make)
    q, k, v = world.rows(sum(span.length for span in spans))
    batch = world.builder.schedule(spans)
    expected = backend.forward(0, q, k, v, backend.plan(batch))
    rows, num_rows = StaticRows(len(q) + 3, world.device), len(q) + 3
    padded = rows.padded(num_rows, batch.block_size)
    graph_plan = backend.graph_plan(padded, len(spans))
    padding = torch.full((3, *q.shape[1:]), float("nan"), dtype=q.dtype, device=q.device)
    num_items = sum(len(launch.items) for launch in backend.plan(batch).launches)
    for programs in (3, num_items + 9):  # fewer than work items, and more
        graph_plan.plan.launches[0] = graph_plan.plan.launches[0]._replace(programs=programs)
        assert graph_plan.load(batch) == ""
        rows.load(batch.host_rows, num_rows)
        got = backend.attend(0, torch.cat((q, padding)), graph_plan.plan)
        assert torch.equal(got[: len(q)], expected)


def check_a_guess_has_the_bits_of_the_same_tokens_decoded_one_by_one(
    make, device="cpu", dtype=torch.float32, build=short_splits, start=29
):
    """The start puts the paths across two splits."""
    world = World(Shape(block_size=4, windows=(None, 6), dtype=dtype, caps=(None, 2.0), sinks=True), device)
    tree, backend = world.tree(start, TREE), build(world, make)
    q, k, v = world.rows(tree.length)
    for layer in (0, 1):
        whole = attend(backend, world, [tree], layer, q, k, v)
        history = world.cache.data[layer][:, slots_of(world, tree, start)].clone()
        for node, path in enumerate(paths_of(tree.draft)):
            decode = world.prompt(start + len(path), 1)
            slots = slots_of(world, decode, start + len(path))
            world.cache.data[layer][:, slots[:start]] = history
            rows = [0, *(1 + ancestor for ancestor in path)]
            world.cache.write(layer, torch.tensor(slots[start:], device=device), k[rows[:-1]], v[rows[:-1]])
            one = attend(backend, world, [decode], layer, q[rows[-1:]], k[rows[-1:]], v[rows[-1:]])
            assert torch.equal(one[0], whole[1 + node]), (layer, node)
            world.free += decode.request.blocks


def slots_of(world, span, count):
    size = world.shape.block_size
    return [span.request.blocks[p // size] * size + p % size for p in range(count)]


def check_neighbours_and_span_cuts_change_no_bit(
    make, device="cpu", dtype=torch.float32, build=short_splits, start=28, count=8
):
    world = World(Shape(dtype=dtype), device)
    backend, span = build(world, make), world.prompt(start, count)
    q, k, v = world.rows(span.length)
    whole = attend(backend, world, [span], 0, q, k, v)
    for width in (1, 5):
        for begin in range(0, span.length, width):
            rows = slice(begin, min(begin + width, span.length))
            part = ScheduledSpan.of(span.request, span.start + begin, rows.stop - rows.start, scored=0)
            before, after = world.prompt(3, 4), world.prompt(40, 1)
            mixed = [torch.cat([n[:4], t[rows], n[4:]]) for n, t in zip(world.rows(5), (q, k, v), strict=True)]
            got = attend(backend, world, [before, part, after], 0, *mixed)
            assert torch.equal(got[4 : 4 + part.length], whole[rows]), (width, begin)
            world.free += before.request.blocks + after.request.blocks


def check_the_height_of_a_tile_changes_no_sum(make, device="cpu"):
    """Weights of 1 and whole values: every sum is exact, so what shows is a wrong key, mask or row."""
    results = []
    for rows in (1, 5):
        world = World(Shape(heads=8, kv_heads=2), device)
        world.cache.data.round_()
        spans = [world.prompt(251, 7), world.tree(6, TREE), world.guesses(5, None, 4)]
        backend = backend_of(world, make, rows)
        q, k, v = (t.round() for t in world.rows(sum(span.length for span in spans)))
        results.append(attend(backend, world, spans, 0, 0 * q, k, v))
    assert torch.equal(*results)


# --- of the cache -----------------------------------------------------------------------------------------


def check_siblings_and_broken_rows_do_not_leak(make, device="cpu"):
    """A row of NaN, and infinite and huge keys, change only the rows whose path holds them."""
    world = World(Shape(), device)
    tree, backend = world.tree(40, TREE), backend_of(world, make)
    q, k, v = world.rows(tree.length)
    before = attend(backend, world, [tree], 0, q, k, v)
    broken = 1 + 2  # node 2, a leaf
    q[broken], k[broken], v[broken] = float("nan"), float("inf"), float("nan")
    after = attend(backend, world, [tree], 0, q, k, v)
    others = [row for row in range(tree.length) if row != broken]
    assert torch.equal(after[others], before[others])
    assert after[broken].isnan().all()
    prompt = world.prompt(20, 6)
    q, k, v = world.rows(6)
    before = attend(backend, world, [prompt], 0, q, k, v)
    q[4], k[4], v[4] = float("nan"), float("nan"), float("inf")
    after = attend(backend, world, [prompt], 0, q, k, v)
    assert torch.equal(after[:4], before[:4])
    assert after[5].isfinite().all()
    assert world.cache.data.isfinite().all()
    k[4] = torch.finfo(torch.float32).max
    attend(backend, world, [prompt], 0, q, k, v)
    assert world.cache.data.abs().max() == world.cache.key_limit


def check_the_cache_is_written_as_its_own_write_does_it(make, device="cpu"):
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        world = World(Shape(head_dim=20, dtype=dtype), device)
        _, k, v = world.rows(7)
        k[0, 0, :4] = torch.tensor([float("nan"), float("inf"), -float("inf"), torch.finfo(dtype).max])
        v[1, 1, :4] = torch.tensor([float("nan"), float("inf"), -float("inf"), torch.finfo(dtype).min])
        slots = torch.randperm(NUM_SLOTS, device=device)[:7]
        expected = world.cache.data.clone()
        world.cache.write(0, slots, k, v)
        ours, world.cache.data[:] = world.cache.data.clone(), expected
        backend_of(world, make).kernels.write(0, slots, k, v)
        assert torch.equal(world.cache.data, ours)


# --- of an engine -----------------------------------------------------------------------------------------


def check_a_hybrid_engine_is_lossless_and_says_what_sdpa_says(make, device="cpu"):
    requests = [toy_request(str(i), range(1, 6 + 9 * i), max_tokens=6, ignore_eos=True, logprobs=2) for i in range(2)]
    with tempfile.TemporaryDirectory() as folder:
        model = write_checkpoint(Path(folder) / "llama")
        extra = {"cuda_references": reference_plugin(make)}
        speculative = assert_hybrid_is_lossless(model, requests, extra, dtype="float32")
        assert speculative.tokens() == run(model, requests, dtype="float32").tokens()


# --- by interpretation -------------------------------------------------------------------------------------


CHECKS = [value for name, value in dict(globals()).items() if name.startswith("check_")]


def main():
    mend_the_interpreter()
    from specserve_cuda.attention.paged_kernels import TritonPaged

    return {check.__name__: outcome(check, TritonPaged) for check in CHECKS}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(main()))
