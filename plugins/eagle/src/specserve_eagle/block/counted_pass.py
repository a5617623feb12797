"""Passes of a block head where passes of draft models are recorded: none of these is, and all are counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import BlockPass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.api import BlockRows, DraftGraphs, DraftStep, DraftToken, ScoredRow
    from specserve.api.batch import Batch, Request

REASON = "passes of block heads are not recorded"


class CountedBlockPass(BlockPass):
    """`specserve.api.BlockPass`. `graphs`: count all passes of draft models."""

    def __init__(self, passes: BlockPass, graphs: DraftGraphs) -> None:
        self.passes, self.graphs = passes, graphs

    def step(
        self, batch: Batch, hidden: Tensor | None, rows: Sequence[ScoredRow], count: int, *, from_target: bool
    ) -> DraftStep:
        self.graphs.count(REASON)
        return self.passes.step(batch, hidden, rows, count, from_target=from_target)

    def draft(
        self, committed: Batch, hidden: Tensor, blocks: Batch, requests: Sequence[Request], wanted: Sequence[int]
    ) -> list[list[DraftToken]]:
        self.graphs.count(REASON)
        return self.passes.draft(committed, hidden, blocks, requests, wanted)

    def rows(self, committed: Batch, hidden: Tensor, blocks: Batch, wanted: Sequence[int]) -> BlockRows | None:
        self.graphs.count(REASON)
        return self.passes.rows(committed, hidden, blocks, wanted)
