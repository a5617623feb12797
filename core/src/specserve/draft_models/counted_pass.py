"""Passes of a draft model that a kernel set computes in one call: nothing is recorded, and they are counted as such."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.protocols import DraftPass
from specserve.types import GraphUse

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.protocols import DraftChains, DraftStep, ScoredRow


class CountedDraftPass(DraftPass):
    """`kernels`: their name; `counts`: of all passes of draft models."""

    def __init__(self, passes: DraftPass, kernels: str, counts: Counter[GraphUse]) -> None:
        self.passes, self.counts = passes, counts
        self.use = GraphUse("none", f"kernels {kernels} compute passes of a draft model in one call")

    def step(
        self, batch: Batch, hidden: Tensor | None, rows: Sequence[ScoredRow], count: int, *, from_target: bool
    ) -> DraftStep:
        self.counts[self.use] += 1
        return self.passes.step(batch, hidden, rows, count, from_target=from_target)

    def chains(
        self, batch: Batch, hidden: Tensor | None, rows: Sequence[ScoredRow], steps: Sequence[int]
    ) -> DraftChains | None:
        made = self.passes.chains(batch, hidden, rows, steps)
        if made is not None:
            self.counts[self.use] += 1 + made.num_passes
        return made
