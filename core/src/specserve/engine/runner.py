"""Runs a batch through the model, and collects the hidden states that drafters need.

Knows nothing of requests, drafts or sampling, nor how a pass is split into calls: a kernel set may fuse the layers, and
where it does not they are called piece by piece.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from specserve.models.tiled import TiledPass
from specserve.types import ForwardOutput

if TYPE_CHECKING:
    from collections.abc import Collection

    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.models.decoder import DecoderModel
    from specserve.protocols import AttentionBackend, ForwardPass, KernelSet


class Runner:
    """`hidden_layers`: the layers whose outputs are needed; layer n's output has key n + 1, the embedding key 0."""

    def __init__(
        self,
        model: DecoderModel,
        kernels: KernelSet,
        attention: AttentionBackend,
        hidden_layers: Collection[int] = (),
    ) -> None:
        self.model, self.attention = model, attention
        self.kernels = kernels
        self.passes = self.pass_over(attention)
        self.passes_of_members: dict[AttentionBackend, ForwardPass] = {}
        """Where the backend is composed of others and one of them serves a whole batch."""
        self.hidden_layers = {layer % (model.num_layers + 1) for layer in hidden_layers}
        stops = sorted({0, *self.hidden_layers, model.num_layers})
        self.stretches = list(pairwise(stops))

    @torch.inference_mode()
    def forward(self, batch: Batch) -> ForwardOutput:
        """Launch the forward pass; on CUDA this returns before it is done."""
        backend = self.attention.backend_for(batch)
        passes = self.pass_of(backend)
        plan = backend.plan(batch)
        x = passes.embed(batch)
        hidden: dict[int, Tensor] = {}
        for begin, end in self.stretches:
            self.tap(hidden, begin, x, batch.num_rows)
            x = passes.layers(x, batch, plan, begin, end)
        self.tap(hidden, self.model.num_layers, x, batch.num_rows)
        return ForwardOutput(passes.logits(x, batch), hidden)

    def pass_of(self, backend: AttentionBackend) -> ForwardPass:
        if backend is self.attention:
            return self.passes
        if backend not in self.passes_of_members:
            self.passes_of_members[backend] = self.pass_over(backend)
        return self.passes_of_members[backend]

    def pass_over(self, attention: AttentionBackend) -> ForwardPass:
        fused = self.kernels.fuse(self.model, attention)
        return TiledPass(self.model, attention, self.kernels.row_tile) if fused is None else fused

    def tap(self, hidden: dict[int, Tensor], layer: int, x: Tensor, num_rows: int) -> None:
        if layer in self.hidden_layers:
            hidden[layer] = x[:num_rows].clone()
