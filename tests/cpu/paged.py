"""Batches over a paged cache, with the slots of every row's path as the reference."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, NamedTuple

import torch
from kv_layouts import BY_SLOT, LAYOUTS, UNUSED, by_slot, from_layout, in_panels, keep, numbers_of, to_layout
from native_cases import machine, randn

from specserve_cpu import _native
from specserve_cpu.attention import native_module

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

KEY_LIMIT = 2.0**50


class Shape(NamedTuple):
    kv_heads: int
    group: int
    dim: int
    block_size: int
    window: int = 0
    cap: float = 0.0
    sinks: bool = False

    @property
    def num_heads(self) -> int:
        return self.kv_heads * self.group

    @property
    def scale(self) -> float:
        return 1 / math.sqrt(self.dim)

    @property
    def sink_scores(self) -> Tensor | None:
        """[heads]: some above all scores, some below."""
        return 4.0 * randn(self.num_heads, seed=77) if self.sinks else None

    @property
    def layouts(self) -> tuple[str, ...]:
        """The cache layouts that support it."""
        fits = self.block_size % 16 == 0 and self.dim % 16 == 0
        return tuple(layout for layout in LAYOUTS if fits or not in_panels(layout))


class SpanCase(NamedTuple):
    """Tokens [start, start + committed) of a request, then drafts. parents: -1 for the last committed token, or None
    for a chain."""

    start: int
    committed: int
    drafts: int = 0
    parents: tuple[int, ...] | None = None

    @property
    def length(self) -> int:
        return self.committed + self.drafts

    @property
    def end(self) -> int:
        return self.start + self.length

    def path(self, row: int) -> list[int]:
        """Positions of the tokens that a row sees."""
        node = row - self.committed
        if node < 0:
            return list(range(self.start + row + 1))
        branch: list[int] = []
        while node >= 0:
            branch.append(self.start + self.committed + node)
            node = node - 1 if self.parents is None else self.parents[node]
        return [*range(self.start + self.committed), *reversed(branch)]


class Paged:
    """Requests with shuffled blocks in a cache with UNUSED in all other slots. `cache` is what it keeps, by slot."""

    def __init__(
        self, shape: Shape, spans: Sequence[SpanCase], dtype: torch.dtype, layout: str = BY_SLOT, seed: int = 0
    ) -> None:
        self.shape, self.spans, self.dtype, self.layout = shape, spans, dtype, layout
        size, rng = shape.block_size, random.Random(seed)
        counts = [-(-each.end // size) for each in spans]
        ids = rng.sample(range(sum(counts) + 2), sum(counts))
        self.blocks = [[ids.pop() for _ in range(count)] for count in counts]
        like = keep(torch.zeros(2, 2, 1, shape.kv_heads, shape.dim, dtype=dtype), layout)
        self.cache = torch.full_like(like.repeat(1, 1, (sum(counts) + 2) * size, 1, 1), UNUSED[layout])
        paths = [[self.slots(i, each.path(row)) for row in range(each.length)] for i, each in enumerate(spans)]
        self.paths = [path for of_request in paths for path in of_request]
        for i, each in enumerate(spans):
            history = self.slots(i, range(each.start))
            numbers = randn(2, 2, len(history), shape.kv_heads, shape.dim, dtype=dtype, seed=seed + i)
            self.cache[:, :, history] = keep(numbers, layout)
        slots = [self.slots(i, range(each.start, each.end)) for i, each in enumerate(spans)]
        self.new_slots = torch.tensor([slot for of_request in slots for slot in of_request], dtype=torch.int64)
        rows = len(self.paths)
        self.q = randn(rows, shape.num_heads, shape.dim, dtype=dtype, seed=seed + 100)
        self.k = randn(rows, shape.kv_heads, shape.dim, dtype=dtype, seed=seed + 101)
        self.v = randn(rows, shape.kv_heads, shape.dim, dtype=dtype, seed=seed + 102)

    def slots(self, request: int, positions: Sequence[int]) -> list[int]:
        size = self.shape.block_size
        return [self.blocks[request][p // size] * size + p % size for p in positions]

    def run(self, isa: str, threads: int = 1, layer: int = 1) -> Tensor:
        cache = to_layout(self.cache, self.layout)
        out = self.run_on(attention(isa, threads, cache, self.shape, self.layout, self.dtype), layer)
        self.cache.copy_(from_layout(cache, self.layout))
        return out

    def run_on(self, native: _native.float32.PagedAttention, layer: int) -> Tensor:
        plan = _native.AttentionPlan(self.shape.block_size, native.rows_per_tile)
        for blocks, each in zip(self.blocks, self.spans, strict=True):
            plan.add(each.start, each.length, each.committed, blocks, each.parents or ())
        out = torch.empty_like(self.q)
        native.forward(layer, self.q, self.k, self.v, self.new_slots, plan, out)
        return out

    def decode_alone(self, row: int, isa: str, layer: int = 1) -> Tensor:
        """After `run`: the output of decoding the last token of the row's path, as a sequence in a cache of its own."""
        path = self.paths[row]
        blocks = -(-len(path) // 16)
        layout = by_slot(self.layout)
        cache = torch.full_like(self.cache[:1, :, :1].repeat(1, 1, 16 * blocks, 1, 1), UNUSED[layout])
        cache[0, :, : len(path) - 1] = self.cache[layer, :, path[:-1]]
        native = attention(isa, 1, cache, self.shape, layout, self.dtype)
        plan = _native.AttentionPlan(16, native.rows_per_tile)
        plan.add(len(path) - 1, 1, 1, list(range(blocks)), ())
        one, out = slice(row, row + 1), torch.empty_like(self.q[:1])
        slot = torch.tensor([len(path) - 1])
        native.forward(0, self.q[one], self.k[one], self.v[one], slot, plan, out)
        return out

    def reference(self, row: int, layer: int = 1) -> tuple[Tensor, Tensor]:
        """In float64: the row's output, and its error if every probability had an error of 1. After `run`."""
        path = self.paths[row][-self.shape.window :]
        k, v = numbers_of(self.cache[layer, :, path], self.layout).repeat_interleave(self.shape.group, 2)
        q = self.q[row].double()
        scores, cap = torch.einsum("hd,khd->hk", q, k) * self.shape.scale, self.shape.cap
        if cap:
            scores = cap * (scores / cap).tanh()
        if self.shape.sinks:
            scores = torch.cat((scores, self.shape.sink_scores.double()[:, None]), 1)
        probs = scores.softmax(-1)[:, : len(path)]
        return torch.einsum("hk,khd->hd", probs, v), torch.einsum("hk,khd->hd", probs, v.abs())


def attention(
    isa: str, threads: int, cache: Tensor, shape: Shape, layout: str, dtype: torch.dtype | None = None
) -> _native.float32.PagedAttention:
    """dtype: of queries; None: the cache's."""
    module = native_module(dtype or cache.dtype)
    rules = [(shape.window, shape.cap, shape.sink_scores)] * len(cache)
    return module.PagedAttention(machine(isa, threads), cache, layout, shape.num_heads, shape.scale, KEY_LIMIT, rules)
