"""Paged attention as Triton kernels: keys and values are written to and read from the cache in place.

One launch configuration per dtype. Split-KV: a program computes one tile, one key head with all its query heads and
one split of the keys; a second kernel merges the states of a tile's splits from first to last. No autotuning, no
atomics, and no tile size that depends on the batch: a row's bits depend on its own path alone. A masked key has a
weight of exactly 0, so the other rows of a tile do not change a row. Imports Triton; only a build on CUDA imports this
module.
"""
# mypy: disable-error-code="untyped-decorator"
# (triton ships no types)

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl

from specserve_cuda.attention.paged_plan import WORKSPACE_BYTES, TileRow
from specserve_cuda.attention.tree_masks import NO_WINDOW
from specserve_cuda.kernels.rows import write_kernel
from specserve_cuda.launch import Launch, dense, power_of_2

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.api import AttentionSpec
    from specserve.api.attention import KVCache
    from specserve_cuda.attention.paged_plan import PagedPlan, TileConfig

LOG2_E = 1.4426950408889634
TILE_FIELDS = tl.constexpr(len(TileRow._fields))


@triton.jit
def softmax_level(row_max: tl.tensor) -> tl.tensor:
    """What is subtracted from scores: the row's maximum, or 0 where all keys are masked (-inf - -inf is NaN)."""
    return tl.where(row_max == float("-inf"), 0.0, row_max)


@triton.jit
def key_slots(
    number: tl.tensor,
    valid: tl.tensor,
    prefix_len: tl.tensor,
    tile_blocks: tl.tensor,
    tile_path: tl.tensor,
    BLOCK_SIZE: tl.constexpr,
) -> tl.tensor:
    """Slots of the keys with these numbers: by the page table before `prefix_len`, along the tree path from it on."""
    in_tree = number >= prefix_len
    block = tl.load(tile_blocks + number // BLOCK_SIZE, mask=valid & (number < prefix_len), other=0)
    path_slot = tl.load(tile_path + number - prefix_len, mask=valid & in_tree, other=0)
    return tl.where(in_tree, path_slot, block * BLOCK_SIZE + number % BLOCK_SIZE)


@triton.jit
def scaled(product: tl.tensor, scale: tl.tensor, soft_cap: tl.tensor, HAS_CAP: tl.constexpr) -> tl.tensor:
    """product * scale or, where scores are capped, soft_cap * tanh of that, within soft_cap * 2^-22."""
    score = product * scale
    if HAS_CAP:
        score = soft_cap * (1.0 - 2.0 / (tl.exp(2.0 * score) + 1.0))
    return score


@triton.jit(do_not_specialize=["window"])
def attend_kernel(
    q: tl.tensor,
    key_cache: tl.tensor,
    value_cache: tl.tensor,
    block_ids: tl.tensor,
    paths: tl.tensor,
    tiles: tl.tensor,
    counts: tl.tensor,
    items: tl.tensor,
    partial_out: tl.tensor,
    partial_max: tl.tensor,
    partial_sum: tl.tensor,
    scale: tl.tensor,
    soft_cap: tl.tensor,
    window: tl.tensor,
    KV_HEADS: tl.constexpr,
    GROUP_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    SPLIT_SIZE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    FIRST_KEY: tl.constexpr,
    HAS_CAP: tl.constexpr,
) -> None:
    """Work items for one key head: the attention state of a tile over the keys of one split. counts: how many items
    there are; where programs are fewer, each takes several.

    Scores are in powers of 2. partial_out: [items, KV_HEADS, BLOCK_M, BLOCK_D]; partial_max and partial_sum lack
    the last dimension; all float32.
    """
    head = tl.program_id(1)
    for index in range(tl.program_id(0), tl.load(counts).to(tl.int32), tl.num_programs(0)):
        item = tl.cast(index, tl.int64)
        tile = tiles + tl.load(items + 2 * item) * TILE_FIELDS
        first_row, num_rows = tl.load(tile), tl.load(tile + 1).to(tl.int32)
        first_length, prefix_len = tl.load(tile + 2).to(tl.int32), tl.load(tile + 3).to(tl.int32)
        lowest = first_length - window - tl.load(tile + 7).to(tl.int32)  # of the first row; windows end at its own key
        tile_blocks, tile_path = block_ids + tl.load(tile + 4), paths + tl.load(tile + 5)
        # --- queries: row by row, the query heads of the key head within each --------------------------
        query, dims = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
        row, head_in_group = query // GROUP_SIZE, query % GROUP_SIZE
        lengths, from_key, in_head = first_length + row, tl.maximum(lowest + row, FIRST_KEY), dims < HEAD_DIM
        q_head = (first_row + row) * (KV_HEADS * GROUP_SIZE) + head * GROUP_SIZE + head_in_group
        q_ptrs = q + q_head[:, None] * HEAD_DIM + dims[None, :]
        queries = tl.load(q_ptrs, mask=(row < num_rows)[:, None] & in_head[None, :], other=0.0)
        # --- keys: BLOCK_N at a time, at multiples of BLOCK_N along the path ---------------------------
        begin = tl.load(items + 2 * item + 1).to(tl.int32) * SPLIT_SIZE
        end = tl.minimum(begin + SPLIT_SIZE, first_length + num_rows - 1)
        first = tl.maximum(begin, lowest // BLOCK_N * BLOCK_N)  # no row attends to the keys before
        row_max = tl.full((BLOCK_M,), float("-inf"), tl.float32)
        row_sum = tl.zeros((BLOCK_M,), tl.float32)
        acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
        for start in range(first, end, BLOCK_N):
            number = start + tl.arange(0, BLOCK_N)
            valid = number < end
            slots = key_slots(number, valid, prefix_len, tile_blocks, tile_path, BLOCK_SIZE)
            offset = (slots * KV_HEADS + head) * HEAD_DIM
            k_ptrs, v_ptrs = key_cache + offset[None, :] + dims[:, None], value_cache + offset[:, None] + dims[None, :]
            k = tl.load(k_ptrs, mask=valid[None, :] & in_head[:, None], other=0.0)
            v = tl.load(v_ptrs, mask=valid[:, None] & in_head[None, :], other=0.0)
            scores = scaled(tl.dot(queries, k, input_precision="ieee"), scale, soft_cap, HAS_CAP)
            visible = (number[None, :] < lengths[:, None]) & (number[None, :] >= from_key[:, None])
            scores = tl.where(visible, scores, float("-inf"))
            new_max = tl.maximum(row_max, tl.max(scores, axis=1))
            level = softmax_level(new_max)
            weights, rescale = tl.exp2(scores - level[:, None]), tl.exp2(row_max - level)
            row_sum = row_sum * rescale + tl.sum(weights, axis=1)
            acc = tl.dot(weights.to(v.dtype), v, acc * rescale[:, None], input_precision="ieee")
            row_max = new_max
        out = (item * KV_HEADS + head) * BLOCK_M + query
        tl.store(partial_max + out, row_max)
        tl.store(partial_sum + out, row_sum)
        tl.store(partial_out + out[:, None] * BLOCK_D + dims[None, :], acc)


@triton.jit
def merge_kernel(
    partial_out: tl.tensor,
    partial_max: tl.tensor,
    partial_sum: tl.tensor,
    tiles: tl.tensor,
    sinks: tl.tensor,
    out: tl.tensor,
    KV_HEADS: tl.constexpr,
    GROUP_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    SPLIT_SIZE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_D: tl.constexpr,
    HAS_SINKS: tl.constexpr,
) -> None:
    """One program per tile and key head: merges the states of its splits in order, and adds the sink of each query head
    to its sum. sinks: [heads] float32, in powers of 2. out: [T, heads, HEAD_DIM]."""
    head = tl.program_id(1)
    tile = tiles + tl.program_id(0).to(tl.int64) * TILE_FIELDS
    first_row, num_rows = tl.load(tile), tl.load(tile + 1).to(tl.int32)
    num_splits = (tl.load(tile + 2).to(tl.int32) + num_rows - 2) // SPLIT_SIZE + 1
    first_item = tl.load(tile + 6)
    query, dims = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    row_max = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    for split in range(num_splits):
        offset = ((first_item + split) * KV_HEADS + head) * BLOCK_M + query
        split_max, split_sum = tl.load(partial_max + offset), tl.load(partial_sum + offset)
        split_acc = tl.load(partial_out + offset[:, None] * BLOCK_D + dims[None, :])
        new_max = tl.maximum(row_max, split_max)
        level = softmax_level(new_max)
        rescale, split_rescale = tl.exp2(row_max - level), tl.exp2(split_max - level)
        row_sum = row_sum * rescale + split_sum * split_rescale
        acc = acc * rescale[:, None] + split_acc * split_rescale[:, None]
        row_max = new_max
    row, head_in_group = query // GROUP_SIZE, query % GROUP_SIZE
    if HAS_SINKS:
        sink = tl.load(sinks + head * GROUP_SIZE + head_in_group)
        new_max = tl.maximum(row_max, sink)
        rescale = tl.exp2(row_max - new_max)
        row_sum = row_sum * rescale + tl.exp2(sink - new_max)
        acc = acc * rescale[:, None]
    out_head = (first_row + row) * (KV_HEADS * GROUP_SIZE) + head * GROUP_SIZE + head_in_group
    offset = out_head[:, None] * HEAD_DIM + dims[None, :]
    result = (acc / row_sum[:, None]).to(out.dtype.element_ty)
    tl.store(out + offset, result, mask=(row < num_rows)[:, None] & (dims < HEAD_DIM)[None, :])


class Workspace(NamedTuple):
    """Partial results of as many work items, as `attend_kernel` describes them. Layers and steps follow each other on
    one stream, so all of them use the same."""

    items: int
    out: Tensor
    max: Tensor
    sum: Tensor


class TritonPaged:
    """Launches the kernels over the cache of one model."""

    def __init__(self, spec: AttentionSpec, cache: KVCache, config: TileConfig) -> None:
        self.spec, self.cache, self.config = spec, cache, config
        self.block_d = max(16, power_of_2(spec.head_dim))
        self.num_kv_heads = spec.num_kv_heads
        self.sinks = [None if sinks is None else sinks * LOG2_E for sinks in spec.sinks]
        group_size = spec.num_heads // spec.num_kv_heads
        self.bytes_per_item = spec.num_kv_heads * config.block_m * (self.block_d + 2) * 4
        self.workspace = self.make_workspace(max(1, WORKSPACE_BYTES // self.bytes_per_item))
        self.large: Workspace | None = None
        heads: dict[str, int | bool] = {"KV_HEADS": spec.num_kv_heads, "HEAD_DIM": spec.head_dim}
        self.write_keys = Launch(write_kernel, {**heads, "BLOCK": power_of_2(spec.head_dim)}, num_warps=1)
        sizes = heads | {
            "GROUP_SIZE": group_size, "SPLIT_SIZE": config.split_size, "BLOCK_M": config.block_m,
            "BLOCK_D": self.block_d,
        }  # fmt: skip
        of_keys = {"BLOCK_SIZE": cache.block_size, "BLOCK_N": config.block_n, "FIRST_KEY": spec.first_key}
        options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
        self.attend_keys, self.attend_capped = (
            Launch(attend_kernel, {**sizes, **of_keys, "HAS_CAP": has_cap}, **options) for has_cap in (False, True)
        )
        self.merge, self.merge_with_sinks = (
            Launch(merge_kernel, {**sizes, "HAS_SINKS": has_sinks}, num_warps=config.num_warps)
            for has_sinks in (False, True)
        )

    def make_workspace(self, items: int) -> Workspace:
        states, data = (items, self.num_kv_heads, self.config.block_m), self.cache.data
        outs = data.new_empty((*states, self.block_d), dtype=torch.float32)
        return Workspace(items, outs, *data.new_empty((2, *states), dtype=torch.float32))

    def larger(self, items: int) -> Workspace:
        """For one tile of very many keys. The other workspace stays where it is: graphs have recorded it."""
        if self.large is None or items > self.large.items:
            self.large = self.make_workspace(power_of_2(items))
        return self.large

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """As `KVCache.write`, in one launch."""
        assert keys.stride(2) == values.stride(2) == 1, "the numbers of a head are contiguous"
        key_cache, value_cache = self.cache.slots[layer]
        self.write_keys(
            len(slots), self.num_kv_heads, keys, values, key_cache, value_cache, slots,
            keys.stride(0), keys.stride(1), values.stride(0), values.stride(1), self.cache.key_limit,
        )  # fmt: skip

    def attend(self, layer: int, q: Tensor, plan: PagedPlan, window: int | None) -> Tensor:
        """q: [T, heads, head_dim] -> the same shape."""
        q = dense(q)
        key_cache, value_cache = self.cache.slots[layer]
        out = torch.empty_like(q)
        _, *partial = self.workspace if plan.max_items <= self.workspace.items else self.larger(plan.max_items)
        cap, sinks = self.spec.soft_cap(layer), self.sinks[layer] if self.sinks else None
        attend, scale = self.attend_keys, self.spec.scale * LOG2_E
        if cap is not None:
            attend, scale = self.attend_capped, self.spec.scale / cap
        merge = self.merge if sinks is None else self.merge_with_sinks
        for programs, tiles, counts, items in plan.launches:
            attend(
                programs, self.num_kv_heads,
                q, key_cache, value_cache, plan.block_ids, plan.paths, tiles, counts, items, *partial,
                scale, LOG2_E * (cap or 0.0), NO_WINDOW if window is None else window,
            )  # fmt: skip
            # a kernel without sinks reads none
            merge(len(tiles), self.num_kv_heads, *partial, tiles, partial[0] if sinks is None else sinks, out)
        return out
