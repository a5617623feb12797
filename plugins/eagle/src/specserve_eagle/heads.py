"""Draft heads over the target's hidden states: EAGLE-1/2, EAGLE-3 (Li et al., 2024, 2025) and MTP (DeepSeek-V3, 2024).

They differ in how a token's embedding and a hidden state become the input of the layers; the rest is a decoder like any
other. Every row-wise piece is computed in the kernel set's tiles, so that a row's bits do not depend on its neighbours.
Letters: R rows, P rows padded to whole tiles, W numbers of the target's hidden state, H the head's hidden size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.models.tiled import in_tiles
from specserve_eagle.passes import DraftStep

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.models.decoder import DecoderModel
    from specserve.models.projection import Projection
    from specserve.protocols import AttentionBackend, DraftLayers, DraftRuntime, Feed, ForwardPass
    from specserve_eagle.checkpoints.head_config import HeadConfig


class LayerInput(NamedTuple):
    """x: [P, H], the residual stream; side: [P, H], what EAGLE-3's layer reads beside it."""

    x: Tensor
    side: Tensor | None


class HeadWeights(NamedTuple):
    """What a head has beside its decoder. Norms that the architecture does not have are None."""

    fc: Projection
    enorm: Tensor | None
    hnorm: Tensor | None
    """Of MTP, and of an EAGLE-3 head whose residual is the normed hidden state."""


class Head:
    """`specserve_eagle.passes.DraftModel`; what is common to all heads."""

    def __init__(
        self,
        config: HeadConfig,
        decoder: DecoderModel,
        weights: HeadWeights,
        target: DecoderModel,
        layers: DraftLayers,
        draft_ids: Tensor | None,
    ) -> None:
        self.config, self.decoder, self.weights, self.target = config, decoder, weights, target
        self.layers, self.draft_ids = layers, draft_ids
        self.hidden_layers = config.hidden_layers
        self.row_tile = decoder.kernels.row_tile
        self.attention: AttentionBackend | None = None
        self.passes: ForwardPass | None = None
        """Both are set by `connect`."""

    def connect(self, runtime: DraftRuntime) -> None:
        self.attention = runtime.attention
        self.passes = runtime.forward_pass(self.decoder)

    def read_committed(self, feed: Feed) -> DraftStep:
        assert feed.hidden is not None, "a head states the layers that it reads"
        return self.read_drafted(feed.batch, in_tiles(self.row_tile, self.from_target, feed.hidden))

    def read_drafted(self, batch: Batch, hidden: Tensor | None) -> DraftStep:
        assert self.attention is not None
        assert self.passes is not None
        assert hidden is not None, "every row reads a hidden state"
        embedded = self.passes.embed(batch)
        begin = self.enter(embedded, padded(hidden, len(embedded)))
        x = self.passes.layers(begin.x, batch, self.attention.plan(batch), side=begin.side)
        logits = self.passes.logits(x, batch)
        rows = x[: batch.num_rows]
        own = rows if batch.scored_rows is None else rows.index_select(0, batch.scored_rows)
        return DraftStep(logits, self.feed_back(own) if len(own) else own)  # none where nothing is drafted

    def from_target(self, hidden: Tensor) -> Tensor:
        """[R, W] -> [R, H]: the target's hidden state as the head reads it."""
        return self.target.normed(hidden, self.target.final_norm)

    def enter(self, embedded: Tensor, hidden: Tensor) -> LayerInput:
        """Both [P, H]; what is returned may be overwritten."""
        raise NotImplementedError

    def feed_back(self, own: Tensor) -> Tensor:
        """The own hidden state [n, H] as the next pass reads it."""
        return own

    def joined(self, embedded: Tensor, hidden: Tensor) -> Tensor:
        """fc over both, in the order of the checkpoint."""
        pair = (embedded, hidden) if self.config.embedding_first else (hidden, embedded)
        return self.weights.fc(torch.cat(pair, -1))


class Eagle1Head(Head):
    def enter(self, embedded: Tensor, hidden: Tensor) -> LayerInput:
        return LayerInput(in_tiles(self.row_tile, self.joined, embedded, hidden), None)


class MtpHead(Head):
    def enter(self, embedded: Tensor, hidden: Tensor) -> LayerInput:
        return LayerInput(in_tiles(self.row_tile, self.normed_and_joined, embedded, hidden), None)

    def normed_and_joined(self, embedded: Tensor, hidden: Tensor) -> Tensor:
        normed = self.decoder.normed
        return self.joined(normed(embedded, self.weights.enorm), normed(hidden, self.weights.hnorm))

    def feed_back(self, own: Tensor) -> Tensor:
        if not self.config.feeds_back_norm:
            return own
        return in_tiles(self.row_tile, lambda rows: self.decoder.normed(rows, self.decoder.final_norm), own)


class Eagle3Head(Head):
    def from_target(self, hidden: Tensor) -> Tensor:
        return self.weights.fc(hidden)

    def enter(self, embedded: Tensor, hidden: Tensor) -> LayerInput:
        if self.weights.hnorm is None:
            return LayerInput(hidden.clone(), embedded)
        return LayerInput(
            in_tiles(self.row_tile, lambda rows: self.decoder.normed(rows, self.weights.hnorm), hidden), embedded
        )


def padded(rows: Tensor, count: int) -> Tensor:
    """Zero rows added up to `count`."""
    missing = count - len(rows)
    return rows if missing == 0 else torch.cat((rows, rows.new_zeros((missing, *rows.shape[1:]))))
