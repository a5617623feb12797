"""Passes of a draft model whose layers are replayed from recorded graphs, where they may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.inference import inference
from specserve.protocols import DraftPass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.protocols import DraftReplays, DraftStep, ScoredRow
    from specserve_draft_models.head_pass import PiecewisePass


class RecordedDraftPass(DraftPass):
    """`specserve.protocols.DraftPass`. `pieces` computes what is not replayed."""

    def __init__(self, pieces: PiecewisePass, layers: DraftReplays) -> None:
        self.pieces, self.layers = pieces, layers

    @inference
    def step(
        self, batch: Batch, hidden: Tensor | None, rows: Sequence[ScoredRow], count: int, *, from_target: bool
    ) -> DraftStep:
        x = self.layers.replay(batch, hidden, from_target=from_target)
        if x is None:
            return self.pieces.step(batch, hidden, rows, count, from_target=from_target)
        return self.pieces.choose(x, batch, rows, count)
