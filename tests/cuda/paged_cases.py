"""Batches over a small paged cache, and attention over them in float64, key by key: what every backend is held to.

Runs on any device; knows no backend. Blocks of the requests are scattered over the cache, whose other slots hold
numbers that must not show.
"""

from __future__ import annotations

import random
from typing import NamedTuple

import msgspec
import torch

from specserve.batch.builder import BatchBuilder
from specserve.batch.drafts import paths_of
from specserve.batch.request import Request
from specserve.batch.span import ScheduledSpan
from specserve.kv.cache import KVCache
from specserve.protocols import AttentionSpec
from specserve.types import Draft
from specserve_workbench.testing.requests import toy_request

TREE = (-1, 0, 0, 1, -1, 4, 4, 3, 7, 5)
LEADING = (-1, 0, 1, 1, 3, 2)
NUM_SLOTS = 4096


class Shape(NamedTuple):
    """Of a model and of its cache."""

    block_size: int = 16
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    windows: tuple[int | None, ...] = (None,)
    dtype: torch.dtype = torch.float32
    caps: tuple[float | None, ...] = ()
    sinks: bool = False


class World:
    """A cache of random numbers, and requests whose blocks are scattered over it."""

    def __init__(self, shape: Shape, device: str = "cpu", seed: int = 0) -> None:
        self.shape, self.device = shape, torch.device(device)
        self.rng, self.generator = random.Random(seed), torch.Generator().manual_seed(seed)
        self.spec = AttentionSpec(
            shape.heads, shape.kv_heads, shape.head_dim, shape.head_dim**-0.5, shape.block_size, shape.windows,
            soft_caps=shape.caps, sinks=tuple(self.sinks_of_layers()) if shape.sinks else (),
        )  # fmt: skip
        self.cache = KVCache(
            num_layers=len(shape.windows),
            num_blocks=NUM_SLOTS // shape.block_size,
            block_size=shape.block_size,
            num_kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            dtype=shape.dtype,
            device=self.device,
        )
        self.cache.data.copy_(self.numbers(*self.cache.data.shape))
        self.free = list(range(self.cache.num_blocks))
        self.rng.shuffle(self.free)
        self.builder = BatchBuilder(shape.block_size, self.device)

    def sinks_of_layers(self):
        """Around the scores; the last layer has none where there are several."""
        count = len(self.shape.windows)
        for layer in range(count):
            has_none = 0 < layer == count - 1
            scores = 3 * torch.randn(self.shape.heads, generator=self.generator)
            yield None if has_none else scores.to(self.device)

    def numbers(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self.generator).to(self.shape.dtype).to(self.device)

    def request(self, num_tokens: int, extra: int = 0) -> Request:
        """`num_tokens` committed tokens, and blocks for `extra` more."""
        wire = toy_request("r", [1] * num_tokens)
        request = Request.admit(wire, seed=0, arrival=0.0, order=0, max_len=num_tokens + extra)
        request.blocks = [self.free.pop() for _ in range(-(-(num_tokens + extra) // self.shape.block_size))]
        return request

    def prompt(self, start: int, length: int) -> ScheduledSpan:
        return ScheduledSpan.of(self.request(start + length), start, length, scored=0)

    def guesses(self, start: int, parents: tuple[int, ...] | None, drafted: int, known: int = 1) -> ScheduledSpan:
        """A verify step: `known` committed tokens from `start` on, then a tree, or a chain where `parents` is None."""
        draft = Draft(tokens=tuple(range(drafted)), parents=parents)
        request = self.request(start + known, drafted)
        return ScheduledSpan.of(request, start, known, scored=drafted + 1, draft=draft)

    def tree(self, start: int, parents: tuple[int, ...], known: int = 1) -> ScheduledSpan:
        return self.guesses(start, parents, len(parents), known)

    def block(self, start: int, length: int) -> ScheduledSpan:
        """Rows of a draft model that see each other."""
        draft = Draft(tokens=tuple(range(length)))
        span = ScheduledSpan.of(self.request(start, length), start, 0, scored=length, draft=draft)
        return msgspec.structs.replace(span, sees_ahead=True)

    def ragged(self) -> list[ScheduledSpan]:
        """A prompt, a chunk, decodes, chains and trees, some across a run of 256 keys."""
        return [
            self.prompt(0, 21),
            self.tree(250, TREE),
            self.prompt(300, 1),
            self.prompt(33, 7),
            self.guesses(61, None, 5),
            self.tree(30, LEADING, known=3),
            self.prompt(0, 1),
            self.prompt(255, 1),
        ]

    def chains(self) -> list[ScheduledSpan]:
        """The same without branches."""
        return [self.prompt(0, 21), self.guesses(250, None, 9), self.prompt(300, 1), self.prompt(33, 7)]

    def rows(self, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """q [count, heads, head_dim]; k, v [count, kv_heads, head_dim], views as the model gives them."""
        shape = self.shape
        q = self.numbers(count, shape.heads, shape.head_dim)
        k, v = self.numbers(count, 3 * shape.kv_heads, shape.head_dim).split((shape.kv_heads, 2 * shape.kv_heads), 1)
        return q, k, v[:, : shape.kv_heads]


def slot_of(span: ScheduledSpan, position: int, size: int) -> int:
    return span.request.blocks[position // size] * size + position % size


def paths_in(world: World, spans: list[ScheduledSpan]) -> list[list[int]]:
    """Per row the slots of its path, itself included."""
    size = world.shape.block_size
    rows = []
    for span in spans:
        known = span.start + span.known
        if span.sees_ahead:
            rows += [[slot_of(span, p, size) for p in range(known + span.drafted)]] * span.drafted
            continue
        for length in range(span.start + 1, known + 1):
            rows.append([slot_of(span, p, size) for p in range(length)])
        for path in [] if span.draft is None else paths_of(span.draft):
            rows.append([slot_of(span, p, size) for p in [*range(known), *(known + node for node in path)]])
    return rows


def keys_ahead(spans: list[ScheduledSpan]) -> list[int]:
    """Per row how many keys of its path are behind its own."""
    return [span.length - 1 - i if span.sees_ahead else 0 for span in spans for i in range(span.length)]


def dense(world: World, spans: list[ScheduledSpan], layer: int, q: torch.Tensor, first_key: int = 0) -> torch.Tensor:
    """Attention over what the cache holds now, in float64: [T, heads, head_dim]. Earlier keys are hidden."""
    window, group = world.shape.windows[layer], world.shape.heads // world.shape.kv_heads
    out = []
    for row, whole, ahead in zip(q.double().cpu(), paths_in(world, spans), keys_ahead(spans), strict=True):
        first = max(first_key, len(whole) - ahead - window) if window else first_key
        keys, values = world.cache.data[layer][:, whole[first:]].double().cpu()
        keys, values = (t.repeat_interleave(group, 1).transpose(0, 1) for t in (keys, values))
        scores = (keys @ row[:, :, None])[..., 0] * world.spec.scale
        cap, sinks = world.spec.soft_cap(layer), world.spec.sinks_of(layer)
        scores = scores if cap is None else cap * (scores / cap).tanh()
        if sinks is not None:
            scores = torch.cat((scores, sinks.double().cpu()[:, None]), 1)
        out.append((scores.softmax(-1)[:, None, : keys.shape[1]] @ values)[:, 0])
    return torch.stack(out)


def attend(backend, world: World, spans: list[ScheduledSpan], layer: int, q, k, v) -> torch.Tensor:
    """One layer of one batch, as the runner does it."""
    return backend.forward(layer, q, k, v, backend.plan(world.builder.schedule(spans)))
