"""Passes of a draft model that a kernel set computes in one call: nothing is recorded, and they are counted as such."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.protocols import DraftPass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.protocols import DraftChains, DraftGraphs, DraftStep, ScoredRow


class CountedDraftPass(DraftPass):
    """`kernels`: their name; `graphs`: count all passes of draft models."""

    def __init__(self, passes: DraftPass, kernels: str, graphs: DraftGraphs) -> None:
        self.passes, self.graphs = passes, graphs
        self.reason = f"kernels {kernels} compute passes of a draft model in one call"

    def step(
        self, batch: Batch, hidden: Tensor | None, rows: Sequence[ScoredRow], count: int, *, from_target: bool
    ) -> DraftStep:
        self.graphs.count(self.reason)
        return self.passes.step(batch, hidden, rows, count, from_target=from_target)

    def chains(
        self, batch: Batch, hidden: Tensor | None, rows: Sequence[ScoredRow], steps: Sequence[int]
    ) -> DraftChains | None:
        made = self.passes.chains(batch, hidden, rows, steps)
        if made is not None:
            self.graphs.count(self.reason, 1 + made.num_passes)
        return made
