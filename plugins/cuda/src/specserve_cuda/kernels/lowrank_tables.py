"""Adapters and segments as the low-rank kernels read them: tables of addresses, and tiles of rows."""

from __future__ import annotations

from itertools import count, pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.api.batch import copy_to_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.api import AdapterWeights, LowRankPart
    from specserve.api.batch import Segment

ROWS, RANKS, DEPTH, COLUMNS = 16, 16, 64, 64
"""Of a program."""
PARTS = 3
"""The most that a fused projection has of its own: q, k and v."""
FIELDS = 6
"""An even number keeps the tables of each projection aligned to 16 bytes; the last one is not used."""


class Entry(NamedTuple):
    """An adapter's parts of one projection. table: [PARTS, FIELDS] int64, the addresses of down and up, rank, first
    output, number of outputs; all zero for a missing part."""

    table: Tensor
    rank: int
    width: int


class PackedAdapter:
    """The weights, and their addresses for the kernels. `number` is unique in the process."""

    numbers = count()

    def __init__(self, weights: AdapterWeights) -> None:
        self.number = next(self.numbers)
        self.weights = {name: tuple(map(dense_part, parts)) for name, parts in weights.items()}
        self.entries = {name: entry_of(parts) for name, parts in self.weights.items()}
        self.rank = max((entry.rank for entry in self.entries.values()), default=0)
        self.joined: tuple[tuple[str, ...], Tensor] | None = None
        """The answer of `tables`, and what was asked: the same for all graphs of a model."""

    def entry(self, projection: str, device: torch.device) -> Entry:
        """All zero where the adapter does not change the projection."""
        found = self.entries.get(projection)
        return Entry(torch.zeros((PARTS, FIELDS), dtype=torch.int64, device=device), 0, 0) if found is None else found

    def tables(self, projections: tuple[str, ...], device: torch.device) -> Tensor:
        """[projections, PARTS, FIELDS]."""
        if self.joined is None or self.joined[0] != projections:
            tables = torch.stack([self.entry(name, device).table for name in projections])
            self.joined = projections, tables
        return self.joined[1]


def dense_part(part: LowRankPart) -> LowRankPart:
    return part._replace(down=part.down.contiguous(), up=part.up.contiguous())


def entry_of(parts: Sequence[LowRankPart]) -> Entry:
    assert len(parts) <= PARTS, f"a projection has at most {PARTS} parts"
    ends = sorted((p.outs.start, p.outs.stop) for p in parts)
    assert all(stop <= start for (_, stop), (start, _) in pairwise(ends)), f"outputs of two parts overlap: {ends}"
    fields = [[p.down.data_ptr(), p.up.data_ptr(), len(p.down), p.outs.start, len(p.up), 0] for p in parts]
    fields += [[0] * FIELDS] * (PARTS - len(parts))
    table = torch.tensor(fields, dtype=torch.int64, device=parts[0].down.device if parts else "cpu")
    return Entry(table, max(f[2] for f in fields), max(f[4] for f in fields))


class Tiling(NamedTuple):
    """tiles: [tiles, 3] int32: first row, number of rows, index into `adapters`."""

    adapters: list[PackedAdapter]
    tiles: Tensor


def tiles_of(segments: Sequence[Segment]) -> tuple[list[PackedAdapter], list[tuple[int, int, int]]]:
    """The adapters in the order in which they appear, and the tiles."""
    order: dict[PackedAdapter, int] = {}
    tiles = [
        (row, min(ROWS, end - row), order.setdefault(adapter, len(order)))
        for begin, end, adapter in segments
        for row in range(begin, end, ROWS)
    ]
    return list(order), tiles


def tile_segments(segments: Sequence[Segment], device: torch.device) -> Tiling:
    adapters, tiles = tiles_of(segments)
    return Tiling(adapters, copy_to_device(torch.tensor(tiles, dtype=torch.int32), device))


def tables_of(adapters: Sequence[PackedAdapter], projections: tuple[str, ...], device: torch.device) -> Tensor:
    """[projections, adapters, PARTS, FIELDS]."""
    return torch.stack([adapter.tables(projections, device) for adapter in adapters], 1)
