"""A pass of a draft model piece by piece: over any kernel set, any attention backend and any sampler.

Every row-wise piece is computed in the kernel set's tiles, so that a row's bits do not depend on its neighbours.
Letters: R rows, P rows padded to whole tiles, H the draft model's hidden size.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from specserve.models.target_norm import TargetNorm
from specserve.models.tiled import in_tiles
from specserve.protocols import DraftPass, DraftStep
from specserve.sampling.choosing import choose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.models.draft_head import DraftHead
    from specserve.protocols import AttentionBackend, ForwardPass, ScoredRow


class PiecewisePass(DraftPass):
    """`specserve.protocols.DraftPass`; `passes`: over the layers of the head's decoder, by `attention`."""

    def __init__(self, head: DraftHead, passes: ForwardPass, attention: AttentionBackend) -> None:
        self.head, self.decoder, self.passes, self.attention = head, head.decoder, passes, attention
        self.in_tiles = partial(in_tiles, head.decoder.kernels.row_tile)

    def step(
        self, batch: Batch, hidden: Tensor | None, rows: Sequence[ScoredRow], count: int, *, from_target: bool
    ) -> DraftStep:
        x = self.layers(self.passes, batch, self.attention.plan(batch), hidden, from_target=from_target)
        return self.choose(x, batch, rows, count)

    def layers(
        self, passes: ForwardPass, batch: Batch, plan: Any, hidden: Tensor | None, *, from_target: bool
    ) -> Tensor:
        """From token ids and hidden states to the last layer's output, [P, H]; `passes`: over the head's layers."""
        x, aux = passes.embed(batch), None
        if self.head.reads_hidden:
            assert hidden is not None, "every row reads a hidden state"
            states = self.in_tiles(self.of_target, hidden) if from_target else hidden
            x, aux = self.enter(x, padded(states, len(x)))
        return passes.layers(x, batch, plan, aux=aux)

    def choose(self, x: Tensor, batch: Batch, rows: Sequence[ScoredRow], count: int) -> DraftStep:
        """From the last layer's output, which is not kept, to tokens and own hidden states."""
        logits = self.passes.logits(x, batch)
        tokens = choose(self.decoder.kernels.sampler, logits, rows, self.head.vocabulary, count)
        return DraftStep(tokens, self.own(x[: batch.num_rows], batch) if self.head.reads_hidden else None)

    def of_target(self, hidden: Tensor) -> Tensor:
        """[R, W] -> [R, H]."""
        source = self.head.from_target
        if not isinstance(source, TargetNorm):
            assert source is not None
            return source(self.head.normed_parts(hidden))
        return hidden if source.weight is None else self.decoder.kernels.rms_norm(hidden, source.weight, source.eps)

    def enter(self, embedded: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
        """Both [P, H] -> the layers' input, which may be overwritten, and the auxiliary input of the first layer."""
        if self.head.fc is not None:
            return self.in_tiles(self.joined, embedded, hidden), None
        if self.head.hnorm is None:
            return hidden.clone(), embedded
        return self.in_tiles(lambda rows: self.decoder.normed(rows, self.head.hnorm), hidden), embedded

    def joined(self, embedded: Tensor, hidden: Tensor) -> Tensor:
        head, normed = self.head, self.decoder.normed
        assert head.fc is not None
        pair = normed(embedded, head.enorm), normed(hidden, head.hnorm)
        return head.fc(torch.cat(pair if head.embedding_first else pair[::-1], -1))

    def own(self, x: Tensor, batch: Batch) -> Tensor:
        """[n, H]: the hidden states of the scored rows, as the next pass reads them."""
        own = x if batch.scored_rows is None else x.index_select(0, batch.scored_rows)
        if not self.head.feeds_back_norm or not len(own):  # no row is scored where nothing is drafted
            return own
        return self.in_tiles(lambda rows: self.decoder.normed(rows, self.decoder.final_norm), own)


def padded(rows: Tensor, count: int) -> Tensor:
    """Zero rows added up to `count`."""
    missing = count - len(rows)
    return rows if missing == 0 else torch.cat((rows, rows.new_zeros((missing, *rows.shape[1:]))))
