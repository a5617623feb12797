"""Paged attention as Triton kernels: keys and values are written and read where they lie.

Owns one launch configuration per dtype. A program takes one tile, one key head with all its query heads, and one run
of `split` keys; a second kernel merges the runs of a tile from first to last. No autotuning, no atomics, and no cut
that follows from the batch: a row's bits depend on its own path alone. A key that a row does not see weighs exactly
nothing, so a row does not feel its tile's other rows. Imports Triton; only a build on CUDA imports this module.
"""
# mypy: disable-error-code="untyped-decorator"
# (triton ships no types)

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from specserve_hybrid_attn.cuda.paged_plan import TILE_FIELDS
from specserve_hybrid_attn.cuda.tree_masks import NO_WINDOW

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.kv.cache import KVCache
    from specserve.protocols import AttentionSpec
    from specserve_hybrid_attn.cuda.paged_plan import Cut, PagedPlan

LOG2_E = 1.4426950408889634
FIELDS = tl.constexpr(TILE_FIELDS)


@triton.jit
def write_kernel(
    keys: tl.tensor,
    values: tl.tensor,
    key_cache: tl.tensor,
    value_cache: tl.tensor,
    slots: tl.tensor,
    key_row: tl.tensor,
    key_head: tl.tensor,
    value_row: tl.tensor,
    value_head: tl.tensor,
    limit: tl.tensor,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIMS: tl.constexpr,
) -> None:
    """One program per head of a row: 0 for NaN and infinities, keys clamped, as `KVCache.write` does it."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    dims = tl.arange(0, DIMS)
    inside = dims < HEAD_DIM
    k = tl.load(keys + row * key_row + head * key_head + dims, mask=inside, other=0.0).to(tl.float32)
    v = tl.load(values + row * value_row + head * value_head + dims, mask=inside, other=0.0).to(tl.float32)
    # comparisons with NaN are false
    k = tl.where(tl.abs(k) < float("inf"), tl.minimum(tl.maximum(k, -limit), limit), 0.0)
    v = tl.where(tl.abs(v) < float("inf"), v, 0.0)
    at = (tl.load(slots + row) * KV_HEADS + head) * HEAD_DIM + dims
    tl.store(key_cache + at, k.to(key_cache.dtype.element_ty), mask=inside)
    tl.store(value_cache + at, v.to(value_cache.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["window"])
def attend_kernel(
    q: tl.tensor,
    key_cache: tl.tensor,
    value_cache: tl.tensor,
    blocks: tl.tensor,
    paths: tl.tensor,
    tiles: tl.tensor,
    items: tl.tensor,
    parts: tl.tensor,
    tops: tl.tensor,
    sums: tl.tensor,
    q_row: tl.tensor,
    q_head: tl.tensor,
    scale: tl.tensor,
    window: tl.tensor,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    SPLIT: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    DIMS: tl.constexpr,
) -> None:
    """The scores' maximum, the weights' sum and the weighted values of one tile over keys [s * SPLIT, (s + 1) * SPLIT).

    Scores are in powers of 2. parts: [items, KV_HEADS, QUERIES, DIMS]; tops, sums: without the last; all float32.
    """
    item, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    tile = tiles + tl.load(items + 2 * item) * FIELDS
    first_row, num_rows = tl.load(tile), tl.load(tile + 1).to(tl.int32)
    first_length, linear = tl.load(tile + 2).to(tl.int32), tl.load(tile + 3).to(tl.int32)
    block_at, path_at = blocks + tl.load(tile + 4), paths + tl.load(tile + 5)
    # --- the queries: row after row, of each its group's heads ------------------------------------
    query, dims = tl.arange(0, QUERIES), tl.arange(0, DIMS)
    row, member = query // GROUP, query % GROUP
    lengths, inside = first_length + row, dims < HEAD_DIM
    q_at = q + (first_row + row)[:, None] * q_row + (head * GROUP + member)[:, None] * q_head + dims[None, :]
    queries = tl.load(q_at, mask=(row < num_rows)[:, None] & inside[None, :], other=0.0)
    # --- the keys, KEYS at a time on a grid of their own numbers ------------------------------------
    begin = tl.load(items + 2 * item + 1).to(tl.int32) * SPLIT
    end = tl.minimum(begin + SPLIT, first_length + num_rows - 1)
    first = tl.maximum(begin, (first_length - window) // KEYS * KEYS)  # nobody sees the keys before
    top = tl.full((QUERIES,), float("-inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    part = tl.zeros((QUERIES, DIMS), tl.float32)
    for start in range(first, end, KEYS):
        number = start + tl.arange(0, KEYS)
        there, along = number < end, number >= linear
        block = tl.load(block_at + number // BLOCK_SIZE, mask=there & (number < linear), other=0)
        on_path = tl.load(path_at + number - linear, mask=there & along, other=0)
        slot = tl.where(along, on_path, block * BLOCK_SIZE + number % BLOCK_SIZE)
        at = (slot * KV_HEADS + head) * HEAD_DIM
        k = tl.load(key_cache + at[None, :] + dims[:, None], mask=there[None, :] & inside[:, None], other=0.0)
        v = tl.load(value_cache + at[:, None] + dims[None, :], mask=there[:, None] & inside[None, :], other=0.0)
        scores = tl.dot(queries, k, input_precision="ieee") * scale
        seen = (number[None, :] < lengths[:, None]) & (number[None, :] >= (lengths - window)[:, None])
        scores = tl.where(seen, scores, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, axis=1))
        level = tl.where(new_top == float("-inf"), 0.0, new_top)  # -inf - -inf is NaN
        weights, shrink = tl.exp2(scores - level[:, None]), tl.exp2(top - level)
        total = total * shrink + tl.sum(weights, axis=1)
        part = tl.dot(weights.to(v.dtype), v, part * shrink[:, None], input_precision="ieee")
        top = new_top
    out = (item * KV_HEADS + head) * QUERIES + query
    tl.store(tops + out, top)
    tl.store(sums + out, total)
    tl.store(parts + out[:, None] * DIMS + dims[None, :], part)


@triton.jit
def merge_kernel(
    parts: tl.tensor,
    tops: tl.tensor,
    sums: tl.tensor,
    tiles: tl.tensor,
    out: tl.tensor,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    SPLIT: tl.constexpr,
    QUERIES: tl.constexpr,
    DIMS: tl.constexpr,
) -> None:
    """One program per tile and key head: its partial results from first to last. out: [T, heads, HEAD_DIM]."""
    head = tl.program_id(1)
    tile = tiles + tl.program_id(0).to(tl.int64) * FIELDS
    first_row, num_rows = tl.load(tile), tl.load(tile + 1).to(tl.int32)
    splits = (tl.load(tile + 2).to(tl.int32) + num_rows - 2) // SPLIT + 1
    first_item = tl.load(tile + 6)
    query, dims = tl.arange(0, QUERIES), tl.arange(0, DIMS)
    top = tl.full((QUERIES,), float("-inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    whole = tl.zeros((QUERIES, DIMS), tl.float32)
    for split in range(splits):
        at = ((first_item + split) * KV_HEADS + head) * QUERIES + query
        part_top, part_total = tl.load(tops + at), tl.load(sums + at)
        part = tl.load(parts + at[:, None] * DIMS + dims[None, :])
        new_top = tl.maximum(top, part_top)
        level = tl.where(new_top == float("-inf"), 0.0, new_top)
        shrink, part_shrink = tl.exp2(top - level), tl.exp2(part_top - level)
        total = total * shrink + part_total * part_shrink
        whole = whole * shrink[:, None] + part * part_shrink[:, None]
        top = new_top
    row, member = query // GROUP, query % GROUP
    out_at = ((first_row + row) * (KV_HEADS * GROUP) + head * GROUP + member)[:, None] * HEAD_DIM + dims[None, :]
    result = (whole / total[:, None]).to(out.dtype.element_ty)
    tl.store(out + out_at, result, mask=(row < num_rows)[:, None] & (dims < HEAD_DIM)[None, :])


class TritonPaged:
    """Launches the kernels over the cache of one model."""

    def __init__(self, spec: AttentionSpec, cache: KVCache, cut: Cut) -> None:
        self.cache, self.cut = cache, cut
        self.dims = max(16, triton.next_power_of_2(spec.head_dim))
        self.kv_heads, self.scale = spec.num_kv_heads, spec.scale * LOG2_E
        self.heads = {"KV_HEADS": spec.num_kv_heads, "HEAD_DIM": spec.head_dim, "DIMS": self.dims}
        self.tiling = {"GROUP": spec.num_heads // spec.num_kv_heads, "SPLIT": cut.split, "QUERIES": cut.queries}
        self.bytes_per_item = spec.num_kv_heads * cut.queries * (self.dims + 2) * 4

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """As `KVCache.write`, in one launch."""
        assert keys.stride(2) == values.stride(2) == 1, "the dimensions of a head lie side by side"
        key_cache, value_cache = self.cache.slots[layer]
        write_kernel[(len(slots), self.kv_heads)](
            keys, values, key_cache, value_cache, slots,
            keys.stride(0), keys.stride(1), values.stride(0), values.stride(1), self.cache.key_limit,
            **self.heads, num_warps=1,
        )  # fmt: skip

    def attend(self, layer: int, q: Tensor, plan: PagedPlan, window: int | None) -> Tensor:
        """q: [T, heads, head_dim] -> the same shape."""
        assert q.stride(2) == 1, "the dimensions of a head lie side by side"
        key_cache, value_cache = self.cache.slots[layer]
        out, cut = torch.empty(q.shape, dtype=q.dtype, device=q.device), self.cut
        results = (plan.most_items, self.kv_heads, cut.queries)
        tops, sums = q.new_empty((2, *results), dtype=torch.float32)
        parts = q.new_empty((*results, self.dims), dtype=torch.float32)
        for wave in plan.waves:
            tiles, items = plan.tiles[wave.tiles], plan.items[wave.items]
            attend_kernel[(len(items), self.kv_heads)](
                q, key_cache, value_cache, plan.blocks, plan.paths, tiles, items, parts, tops, sums,
                q.stride(0), q.stride(1), self.scale, NO_WINDOW if window is None else window,
                **self.heads, **self.tiling, BLOCK_SIZE=self.cache.block_size, KEYS=cut.keys,
                num_warps=cut.num_warps, num_stages=cut.num_stages,
            )  # fmt: skip
            merge_kernel[(len(tiles), self.kv_heads)](
                parts, tops, sums, tiles, out, **self.heads, **self.tiling, num_warps=cut.num_warps
            )
        return out
