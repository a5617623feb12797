"""The reference implementation of `paged_kernels` in torch, tile by tile and key block by key block. For tests; slow.

It takes the same plan, so what the tests prove of the plan holds for the kernels too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve_cuda.attention.paged_plan import TileRow

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.api import AttentionSpec
    from specserve.api.attention import KVCache
    from specserve_cuda.attention.paged_plan import PagedPlan, TileConfig

LOG2_E = 1.4426950408889634


class AttentionState(NamedTuple):
    """Over some keys: the largest score and the sum of weights [block_m, 1], weighted values [block_m, head_dim]."""

    row_max: Tensor
    row_sum: Tensor
    acc: Tensor


class HeadTile(NamedTuple):
    """One tile for one key head of a layer: what a program works on."""

    tile: TileRow
    layer: int
    head: int
    window: int | None


class TorchPaged:
    """Computes what `TritonPaged` computes. All sums have one shape, so a row's bits do not depend on its tile."""

    def __init__(self, spec: AttentionSpec, cache: KVCache, config: TileConfig) -> None:
        self.spec, self.cache, self.config = spec, cache, config
        self.group_size = spec.num_heads // spec.num_kv_heads
        self.bytes_per_item = spec.num_kv_heads * config.block_m * (spec.head_dim + 2) * 4

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        real = slots >= 0
        self.cache.write(layer, slots[real], keys[real], values[real])

    def attend(self, layer: int, q: Tensor, plan: PagedPlan, window: int | None) -> Tensor:
        out = torch.empty_like(q)
        for launch in plan.launches:
            tiles = [TileRow(*fields) for fields in launch.tiles.tolist()]
            for tile in (tile for tile in tiles if tile.num_rows):  # the others are padding
                for head in range(self.spec.num_kv_heads):
                    self.attend_tile(HeadTile(tile, layer, head, window), q, plan, out)
        return out

    def attend_tile(self, work: HeadTile, q: Tensor, plan: PagedPlan, out: Tensor) -> None:
        tile, block_m = work.tile, self.config.block_m
        rows = slice(tile.first_row, tile.first_row + tile.num_rows)
        heads = slice(work.head * self.group_size, (work.head + 1) * self.group_size)
        num_queries = tile.num_rows * self.group_size
        queries = q.new_zeros(block_m, self.spec.head_dim, dtype=torch.float32)
        queries[:num_queries] = q[rows, heads].flatten(0, 1)
        state = self.empty_state()
        for begin in range(0, tile.first_length + tile.num_rows - 1, self.config.split_size):
            state = merge_states(state, self.attend_split(work, begin, queries, plan))
        if (sinks := self.spec.sinks_of(work.layer)) is not None:
            state = merge_states(state, self.sink_state(sinks[heads]))
        result = (state.acc / state.row_sum)[:num_queries]
        out[rows, heads] = result.view(tile.num_rows, self.group_size, -1).to(q.dtype)

    def attend_split(self, work: HeadTile, begin: int, queries: Tensor, plan: PagedPlan) -> AttentionState:
        """Over the keys [begin, begin + split_size) of the tile."""
        tile, config, state = work.tile, self.config, self.empty_state()
        lengths = tile.first_length + torch.arange(config.block_m)[:, None] // self.group_size
        end = min(begin + config.split_size, tile.first_length + tile.num_rows - 1)
        for start in range(begin, end, config.block_n):
            number = torch.arange(start, start + config.block_n)
            valid = number < end
            slots = self.key_slots(tile, number, valid, plan)
            k, v = (t[slots, work.head].float() for t in self.cache.slots[work.layer])
            scores = (queries[:, None] * k).sum(-1) * self.spec.scale
            if (cap := self.spec.soft_cap(work.layer)) is not None:
                scores = cap * (1 - 2 / (torch.exp(2 * scores / cap) + 1))
            scores *= LOG2_E
            visible = valid & (number < lengths) & (number >= self.spec.first_key)
            if work.window is not None:
                visible &= number >= lengths - tile.ahead - work.window
            state = self.add_keys(state, scores.masked_fill(~visible, float("-inf")), v)
        return state

    def key_slots(self, tile: TileRow, number: Tensor, valid: Tensor, plan: PagedPlan) -> Tensor:
        """Slots of the keys with these numbers; 0 for those that are not valid."""
        size, in_tree = self.cache.block_size, number >= tile.prefix_len
        block = plan.block_ids[torch.where(valid & ~in_tree, tile.first_block + number // size, 0)]
        path_index = torch.where(valid & in_tree, tile.path_offset + number - tile.prefix_len, 0)
        slots = torch.where(in_tree, plan.paths.flatten()[path_index], block * size + number % size)
        return torch.where(valid, slots, 0)

    def add_keys(self, state: AttentionState, scores: Tensor, v: Tensor) -> AttentionState:
        """One step of online softmax (Milakov and Gimelshein, 2018). scores: [block_m, block_n], v: [block_n, D]."""
        row_max = torch.maximum(state.row_max, scores.amax(1, keepdim=True))
        level = row_max.masked_fill(row_max == float("-inf"), 0.0)
        weights, rescale = torch.exp2(scores - level), torch.exp2(state.row_max - level)
        rounded = weights.to(self.cache.data.dtype).float()
        weighted = (rounded[:, None] * v.T).sum(-1)
        row_sum = state.row_sum * rescale + weights.sum(1, keepdim=True)
        return AttentionState(row_max, row_sum, state.acc * rescale + weighted)

    def sink_state(self, sinks: Tensor) -> AttentionState:
        """Of one key whose scores are the sinks of a key head's queries, and whose value is 0. sinks: [group size]."""
        scores = sinks[torch.arange(self.config.block_m) % self.group_size, None] * LOG2_E
        return AttentionState(scores, torch.ones_like(scores), torch.zeros(self.config.block_m, self.spec.head_dim))

    def empty_state(self) -> AttentionState:
        row_max = torch.full((self.config.block_m, 1), float("-inf"))
        return AttentionState(row_max, torch.zeros_like(row_max), torch.zeros(self.config.block_m, self.spec.head_dim))


def merge_states(left: AttentionState, right: AttentionState) -> AttentionState:
    """The state over the keys of both."""
    row_max = torch.maximum(left.row_max, right.row_max)
    level = row_max.masked_fill(row_max == float("-inf"), 0.0)
    a, b = torch.exp2(left.row_max - level), torch.exp2(right.row_max - level)
    return AttentionState(row_max, left.row_sum * a + right.row_sum * b, left.acc * a + right.acc * b)
