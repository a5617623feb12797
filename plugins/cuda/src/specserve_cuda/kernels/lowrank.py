"""Low-rank additions on CUDA: all segments of a batch in two Triton kernels per projection, down and up again.

Owns the table of addresses of adapters' weights, and the tiling of segments. A row's bits follow from its own values:
no tile holds rows of two segments, depth and rank are reduced in order, there are no atomics. Rounds where the torch
version, `lowrank.add_to_all_rows`, does. Imports Triton.
"""
# mypy: disable-error-code="untyped-decorator"
# (triton ships no types)

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from specserve_cuda.kernels.loaded_segments import LoadedSegments
from specserve_cuda.kernels.lowrank_tables import (
    COLUMNS,
    DEPTH,
    FIELDS,
    PARTS,
    RANKS,
    ROWS,
    PackedAdapter,
    Tiling,
    tile_segments,
)
from specserve_cuda.launch import ALIGNMENT, Launch, blocks, dense

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.api.batch import Segment

CACHED_TABLES = 256
"""Most recently used tables, one per combination of adapters and projection."""


@triton.jit(do_not_specialize=["num_rows"])
def down_kernel(
    x: tl.tensor,
    tiles: tl.tensor,
    table: tl.tensor,
    reduced: tl.tensor,
    num_rows: tl.tensor,
    depth: tl.tensor,
    x_stride: tl.tensor,
    most_ranks: tl.tensor,
    PARTS: tl.constexpr,
    FIELDS: tl.constexpr,
    ROWS: tl.constexpr,
    RANKS: tl.constexpr,
    DEPTH: tl.constexpr,
) -> None:
    """reduced[part, row, r] = sum over d of x[row, d] * down[r, d]; one program per tile, part and block of ranks."""
    begin = tl.load(tiles + tl.program_id(0) * 3)
    count = tl.load(tiles + tl.program_id(0) * 3 + 1)
    part = tl.program_id(1) % PARTS
    entry = table + (tl.load(tiles + tl.program_id(0) * 3 + 2) * PARTS + part) * FIELDS
    rank = tl.load(entry + 2).to(tl.int32)
    first = tl.program_id(1) // PARTS * RANKS
    if (first >= rank) | (count == 0):
        return
    down = tl.load(entry).to(tl.pointer_type(x.dtype.element_ty))
    rows, ranks, depths = tl.arange(0, ROWS), first + tl.arange(0, RANKS), tl.arange(0, DEPTH)
    total = tl.zeros((ROWS, RANKS), dtype=tl.float32)
    for start in range(0, depth, DEPTH):
        inside = depths < depth - start
        at = (begin + rows[:, None]).to(tl.int64) * x_stride + start + depths[None, :]
        a = tl.load(x + at, mask=(rows[:, None] < count) & inside[None, :], other=0.0)
        b = tl.load(
            down + ranks[None, :].to(tl.int64) * depth + start + depths[:, None],
            mask=(ranks[None, :] < rank) & inside[:, None],
            other=0.0,
        )
        total = tl.dot(a, b, total, input_precision="ieee")
    to = (part.to(tl.int64) * num_rows + begin + rows[:, None]) * most_ranks + ranks[None, :]
    tl.store(reduced + to, total.to(x.dtype.element_ty), mask=(rows[:, None] < count) & (ranks[None, :] < rank))


@triton.jit(do_not_specialize=["num_rows"])
def up_kernel(
    reduced: tl.tensor,
    tiles: tl.tensor,
    table: tl.tensor,
    out: tl.tensor,
    num_rows: tl.tensor,
    out_stride: tl.tensor,
    most_ranks: tl.tensor,
    PARTS: tl.constexpr,
    FIELDS: tl.constexpr,
    ROWS: tl.constexpr,
    RANKS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    """out[row, first + c] += sum over r of reduced[part, row, r] * up[c, r]; one program per tile, part and columns."""
    begin = tl.load(tiles + tl.program_id(0) * 3)
    count = tl.load(tiles + tl.program_id(0) * 3 + 1)
    part = tl.program_id(1) % PARTS
    entry = table + (tl.load(tiles + tl.program_id(0) * 3 + 2) * PARTS + part) * FIELDS
    rank = tl.load(entry + 2).to(tl.int32)
    width = tl.load(entry + 4).to(tl.int32)
    begin_column = tl.program_id(1) // PARTS * COLUMNS
    columns = begin_column + tl.arange(0, COLUMNS)
    if (rank == 0) | (begin_column >= width) | (count == 0):
        return
    up = tl.load(entry + 1).to(tl.pointer_type(out.dtype.element_ty))
    rows, ranks = tl.arange(0, ROWS), tl.arange(0, RANKS)
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(0, rank, RANKS):
        inside = ranks < rank - start
        at = (part.to(tl.int64) * num_rows + begin + rows[:, None]) * most_ranks + start + ranks[None, :]
        a = tl.load(reduced + at, mask=(rows[:, None] < count) & inside[None, :], other=0.0)
        b = tl.load(
            up + columns[None, :].to(tl.int64) * rank + start + ranks[:, None],
            mask=(columns[None, :] < width) & inside[:, None],
            other=0.0,
        )
        total = tl.dot(a, b, total, input_precision="ieee")
    to = (begin + rows[:, None]).to(tl.int64) * out_stride + tl.load(entry + 3) + columns[None, :]
    mask = (rows[:, None] < count) & (columns[None, :] < width)
    added = total.to(out.dtype.element_ty).to(tl.float32)
    before = tl.load(out + to, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + to, (before + added).to(out.dtype.element_ty), mask=mask)


class SegmentedAdd:
    """`add_low_rank` of `CudaKernels`. Caches tables and tilings: all layers of a step need the same."""

    def __init__(self) -> None:
        self.tables: OrderedDict[tuple[str | int, ...], tuple[Tensor, int, int] | None] = OrderedDict()
        self.last: tuple[Sequence[Segment], Tiling] | None = None
        self.launches: dict[tuple[torch.dtype | int | bool, ...], tuple[Launch, Launch]] = {}
        """Down and up, by all that they are specialised on."""

    def __call__(self, projection: str, x: Tensor, out: Tensor, segments: Sequence[Segment]) -> None:
        x = dense(x)
        if isinstance(segments, LoadedSegments):
            tiles, table, rank, width = segments.tiles, segments.table_of[projection], segments.rank, out.shape[1]
            reduced = segments.reduced(x)
        else:
            adapters, tiles = self.cached_tiling(segments, x.device)
            found = self.table(projection, adapters, x.device)
            if found is None:
                return
            table, rank, width = found
            reduced = x.new_empty((PARTS, len(x), rank))
        down, up = self.launches_for(x, out)
        down(
            len(tiles), PARTS * blocks(rank, RANKS),
            x, tiles, table, reduced, len(x), x.shape[1], x.stride(0), rank,
        )  # fmt: skip
        up(
            len(tiles), PARTS * blocks(width, COLUMNS),
            reduced, tiles, table, out, len(x), out.stride(0), rank,
        )  # fmt: skip

    def launches_for(self, x: Tensor, out: Tensor) -> tuple[Launch, Launch]:
        key = x.dtype, x.shape[1], out.stride(0), out.data_ptr() % ALIGNMENT == 0
        if key not in self.launches:
            common: dict[str, int | bool] = {"PARTS": PARTS, "FIELDS": FIELDS, "ROWS": ROWS, "RANKS": RANKS}
            down = Launch(down_kernel, {**common, "DEPTH": DEPTH})
            self.launches[key] = down, Launch(up_kernel, {**common, "COLUMNS": COLUMNS})
        return self.launches[key]

    def table(
        self, projection: str, adapters: Sequence[PackedAdapter], device: torch.device
    ) -> tuple[Tensor, int, int] | None:
        """[adapters, PARTS, FIELDS], the largest rank in whole blocks, and the largest width; None where no adapter
        changes the projection."""
        key: tuple[str | int, ...] = (projection, *(adapter.number for adapter in adapters))
        if key not in self.tables:
            entries = [adapter.entry(projection, device) for adapter in adapters]
            # in whole blocks: a kernel specialised on a neighbour's rank would be another binary
            rank, width = blocks(max(e.rank for e in entries), RANKS) * RANKS, max(e.width for e in entries)
            self.tables[key] = (torch.stack([e.table for e in entries]), rank, width) if rank else None
            if len(self.tables) > CACHED_TABLES:
                self.tables.popitem(last=False)
        self.tables.move_to_end(key)
        return self.tables[key]

    def cached_tiling(self, segments: Sequence[Segment], device: torch.device) -> Tiling:
        """A plan gives every projection the same list object, so one tiling is cached."""
        if self.last is None or self.last[0] is not segments:
            self.last = segments, tile_segments(segments, device)
        return self.last[1]
