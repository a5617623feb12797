"""Adapters of recorded passes on CUDA: tiles and tables in memory at addresses that stay, loaded for each step.

A step has fewer tiles than there is room for: the others have no rows, and their programs end at once. Imports Triton.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

import torch

from specserve.api import BadAnswerError
from specserve.api.batch import Segment, copy_into
from specserve_cuda.kernels.lowrank_tables import FIELDS, PARTS, RANKS, ROWS, tables_of, tiles_of
from specserve_cuda.launch import blocks

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.api import AdapterLimits


class LoadedSegments(Sequence[Segment]):
    """`specserve.api.GraphAdapters`, and its own `segments`: kernels are recorded for it while it is empty."""

    def __init__(self, projections: Sequence[str], limits: AdapterLimits, device: torch.device) -> None:
        self.projections, self.limits, self.device = tuple(projections), limits, device
        self.rank = blocks(limits.rank, RANKS) * RANKS
        num_tiles = blocks(limits.rows, ROWS) + limits.segments
        self.tiles = torch.zeros((num_tiles, 3), dtype=torch.int32, device=device)
        shape = len(self.projections), limits.segments, PARTS, FIELDS
        self.tables = torch.zeros(shape, dtype=torch.int64, device=device)
        self.table_of = dict(zip(self.projections, self.tables, strict=True))
        self.loaded: list[int] = []
        """The numbers of the adapters in the tables."""
        self.current: Sequence[Segment] = ()
        self.memory: dict[tuple[torch.dtype, int], Tensor] = {}

    @property
    def segments(self) -> LoadedSegments:
        return self

    def load(self, segments: Sequence[Segment]) -> None:
        adapters, tiles = tiles_of(segments)
        self.current = segments
        padded = torch.tensor([*tiles, *[(0, 0, 0)] * (len(self.tiles) - len(tiles))], dtype=torch.int32)
        copy_into(self.tiles, padded, self.device)
        if any(adapter.rank > self.rank for adapter in adapters):
            raise BadAnswerError("planned adapters of a higher rank than it said")
        numbers = [adapter.number for adapter in adapters]
        if adapters and numbers != self.loaded:
            self.tables[:, : len(adapters)] = tables_of(adapters, self.projections, self.device)
            self.loaded = numbers

    def forget(self) -> None:
        self.current = ()

    def reduced(self, x: Tensor) -> Tensor:
        """[PARTS, rows of x, rank]: made before the recording, by the run that compiles the kernels."""
        key = x.dtype, len(x)
        if key not in self.memory:
            self.memory[key] = x.new_empty((PARTS, len(x), self.rank))
        return self.memory[key]

    # --- a sequence of segments ---------------------------------------------------------------------

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        return len(self.current)

    @overload
    def __getitem__(self, index: int) -> Segment: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Segment]: ...
    def __getitem__(self, index: int | slice) -> Segment | Sequence[Segment]:
        return self.current[index]
