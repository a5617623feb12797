"""Runs a batch through the model, and takes the hidden states that somebody needs on the way.

Knows nothing of requests, drafts or sampling, nor how a pass is cut into calls: a kernel set may fuse the layers, and
where it does not they are called piece by piece.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from specserve.tiled import TiledPass
from specserve.types import ForwardOutput

if TYPE_CHECKING:
    from collections.abc import Collection

    from torch import Tensor

    from specserve.batch import Batch
    from specserve.models.decoder import DecoderModel
    from specserve.protocols import AttentionBackend, ForwardPass, KernelSet


class Runner:
    """`hidden_layers`: which layers' outputs somebody needs; layer n's output is key n + 1, the embedding key 0."""

    def __init__(
        self,
        model: DecoderModel,
        kernels: KernelSet,
        attention: AttentionBackend,
        hidden_layers: Collection[int] = (),
    ) -> None:
        self.model, self.attention = model, attention
        fused = kernels.fuse(model, attention)
        self.passes: ForwardPass = TiledPass(model, attention, kernels.row_tile) if fused is None else fused
        self.hidden_layers = {layer % (model.num_layers + 1) for layer in hidden_layers}
        stops = sorted({0, *self.hidden_layers, model.num_layers})
        self.stretches = list(pairwise(stops))

    @torch.inference_mode()
    def forward(self, batch: Batch) -> ForwardOutput:
        """Launch the forward pass; on CUDA this returns before it is done."""
        plan = self.attention.plan(batch)
        x = self.passes.embed(batch)
        hidden: dict[int, Tensor] = {}
        for begin, end in self.stretches:
            self.tap(hidden, begin, x, batch.num_rows)
            x = self.passes.layers(x, batch, plan, begin, end)
        self.tap(hidden, self.model.num_layers, x, batch.num_rows)
        return ForwardOutput(self.passes.logits(x, batch), hidden)

    def tap(self, hidden: dict[int, Tensor], layer: int, x: Tensor, num_rows: int) -> None:
        if layer in self.hidden_layers:
            hidden[layer] = x[:num_rows].clone()
