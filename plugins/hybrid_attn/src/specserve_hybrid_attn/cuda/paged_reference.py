"""The arithmetic of `paged_kernels` in torch, tile by tile and key block by key block: the twin that runs anywhere.

For tests and for reading; slow. It takes the same plan, so what it proves of the plan holds for the kernels too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.kv.cache import KVCache
    from specserve.protocols import AttentionSpec
    from specserve_hybrid_attn.cuda.paged_plan import Cut, PagedPlan

LOG2_E = 1.4426950408889634


class Partial(NamedTuple):
    """Of some keys: the largest score and the sum of weights [queries, 1], the weighted values [queries, head_dim]."""

    top: Tensor
    total: Tensor
    values: Tensor


class TorchPaged:
    """Attends as `TritonPaged` does; sums go over the last dimension of one shape, so a row's place has no say."""

    def __init__(self, spec: AttentionSpec, cache: KVCache, cut: Cut) -> None:
        self.spec, self.cache, self.cut = spec, cache, cut
        self.group_size = spec.num_heads // spec.num_kv_heads
        self.bytes_per_item = spec.num_kv_heads * cut.queries * (spec.head_dim + 2) * 4

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        self.cache.write(layer, slots, keys, values)

    def attend(self, layer: int, q: Tensor, plan: PagedPlan, window: int | None) -> Tensor:
        out = torch.empty_like(q)
        for wave in plan.waves:
            for tile in plan.tiles[wave.tiles].tolist():
                for head in range(self.spec.num_kv_heads):
                    self.attend_tile(layer, head, tile, q, plan, window, out)
        return out

    def attend_tile(
        self, layer: int, head: int, tile: list[int], q: Tensor, plan: PagedPlan, window: int | None, out: Tensor
    ) -> None:
        first_row, num_rows, first_length = tile[:3]
        rows = slice(first_row, first_row + num_rows)
        heads = slice(head * self.group_size, (head + 1) * self.group_size)
        queries = q.new_zeros(self.cut.queries, self.spec.head_dim, dtype=torch.float32)
        queries[: num_rows * self.group_size] = q[rows, heads].flatten(0, 1)
        lengths = first_length + torch.arange(self.cut.queries)[:, None] // self.group_size
        whole = self.nothing()
        for begin in range(0, first_length + num_rows - 1, self.cut.split):
            whole = merge(whole, self.run(layer, head, tile, begin, queries, lengths, plan, window))
        result = (whole.values / whole.total)[: num_rows * self.group_size]
        out[rows, heads] = result.view(num_rows, self.group_size, -1).to(q.dtype)

    def run(
        self,
        layer: int,
        head: int,
        tile: list[int],
        begin: int,
        queries: Tensor,
        lengths: Tensor,
        plan: PagedPlan,
        window: int | None,
    ) -> Partial:
        """The keys [begin, begin + split) of a tile."""
        _, num_rows, first_length, linear, block_at, path_at = tile[:6]
        state, size, paths = self.nothing(), self.cache.block_size, plan.paths.flatten()
        end = min(begin + self.cut.split, first_length + num_rows - 1)
        for start in range(begin, end, self.cut.keys):
            number = torch.arange(start, start + self.cut.keys)
            there, along = number < end, number >= linear
            block = plan.blocks[torch.where(there & ~along, block_at + number // size, 0)]
            on_path = paths[torch.where(there & along, path_at + number - linear, 0)]
            slot = torch.where(there, torch.where(along, on_path, block * size + number % size), 0)
            k, v = (t[slot, head].float() for t in self.cache.slots[layer])
            scores = (queries[:, None] * k).sum(-1) * (self.spec.scale * LOG2_E)
            seen = there & (number < lengths)
            if window is not None:
                seen &= number >= lengths - window
            scores = scores.masked_fill(~seen, float("-inf"))
            top = torch.maximum(state.top, scores.amax(1, keepdim=True))
            level = top.masked_fill(top == float("-inf"), 0.0)
            weights, shrink = torch.exp2(scores - level), torch.exp2(state.top - level)
            rounded = weights.to(self.cache.data.dtype).float()
            weighted = (rounded[:, None] * v.T).sum(-1)
            state = Partial(top, state.total * shrink + weights.sum(1, keepdim=True), state.values * shrink + weighted)
        return state

    def nothing(self) -> Partial:
        top = torch.full((self.cut.queries, 1), float("-inf"))
        return Partial(top, torch.zeros_like(top), torch.zeros(self.cut.queries, self.spec.head_dim))


def merge(left: Partial, right: Partial) -> Partial:
    """Of the keys of both."""
    top = torch.maximum(left.top, right.top)
    level = top.masked_fill(top == float("-inf"), 0.0)
    a, b = torch.exp2(left.top - level), torch.exp2(right.top - level)
    return Partial(top, left.total * a + right.total * b, left.values * a + right.values * b)
