"""Passes of a draft model that a kernel set computes in one call: nothing is recorded, and they are counted as such."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from specserve.types import GraphUse

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.protocols import ChainPass, DraftChains, DraftPass, DraftStep, ScoredRow


def counted(passes: DraftPass, kernels: str, counts: Counter[GraphUse]) -> DraftPass:
    use = GraphUse("none", f"kernels {kernels} compute passes of a draft model in one call")
    if hasattr(passes, "chains"):
        return CountedChainPass(cast("ChainPass", passes), use, counts)
    return CountedDraftPass(passes, use, counts)


class CountedDraftPass:
    """`specserve.protocols.DraftPass`."""

    def __init__(self, passes: DraftPass, use: GraphUse, counts: Counter[GraphUse]) -> None:
        self.passes, self.use, self.counts = passes, use, counts

    def step(
        self, batch: Batch, hidden: Tensor | None, rows: Sequence[ScoredRow], count: int, *, from_target: bool
    ) -> DraftStep:
        self.counts[self.use] += 1
        return self.passes.step(batch, hidden, rows, count, from_target=from_target)


class CountedChainPass(CountedDraftPass):
    """`specserve.protocols.ChainPass`."""

    def __init__(self, passes: ChainPass, use: GraphUse, counts: Counter[GraphUse]) -> None:
        super().__init__(passes, use, counts)
        self.chain_passes = passes

    def chains(
        self, batch: Batch, hidden: Tensor | None, rows: Sequence[ScoredRow], steps: Sequence[int]
    ) -> DraftChains | None:
        made = self.chain_passes.chains(batch, hidden, rows, steps)
        if made is not None:
            self.counts[self.use] += 1 + made.num_passes
        return made
