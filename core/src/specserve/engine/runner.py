"""Runs a batch through the model, and collects the hidden states that drafters need.

Knows nothing of requests, drafts or sampling, nor how a pass is computed: a kernel set may fuse the layers, and where
it does not they are called piece by piece.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve.batch.hidden_states import HiddenBuffers
from specserve.inference import inference
from specserve.models.tiled import forward_pass
from specserve.types import ForwardOutput

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from specserve.batch.batch import Batch
    from specserve.json_types import JsonObject
    from specserve.models.decoder import DecoderModel
    from specserve.protocols import AttentionBackend, ForwardPass, GraphMode, KernelSet


class StepParts(NamedTuple):
    """What computes a step. `hidden_layers`: the layers whose outputs are needed; layer n's output has key n + 1, the
    embedding key 0. `graphs`: those that the attention backend states to serve."""

    model: DecoderModel
    kernels: KernelSet
    attention: AttentionBackend
    hidden_layers: Collection[int] = ()
    graphs: tuple[GraphMode, ...] = ("piecewise", "full")


class Runner:
    row_buckets: Sequence[int] = ()
    """Rows that steps are padded to, ascending; empty where they are not."""

    def __init__(self, parts: StepParts) -> None:
        self.model, self.kernels, self.attention, hidden_layers, _ = parts
        model = self.model
        self.passes = forward_pass(model, self.kernels, self.attention)
        self.passes_of_members: dict[AttentionBackend, ForwardPass] = {}
        """Where the backend is composed of others and one of them serves a whole batch."""
        layers = sorted({layer % (model.num_layers + 1) for layer in hidden_layers})
        self.hidden = HiddenBuffers(layers, model.hidden_size)

    @inference
    def forward(self, batch: Batch) -> ForwardOutput:
        """Launch the forward pass; on CUDA this returns before it is done."""
        backend = self.attention.backend_for(batch)
        passes = self.pass_of(backend)
        plan = backend.plan(batch)
        x = passes.embed(batch)
        hidden = self.hidden.of_step(x, batch.num_rows)
        x = passes.layers(x, batch, plan, hidden)
        return ForwardOutput(passes.logits(x, batch), hidden)

    def describe_graphs(self) -> JsonObject:
        return {"mode": "none"}

    def pass_of(self, backend: AttentionBackend) -> ForwardPass:
        if backend is self.attention:
            return self.passes
        if backend not in self.passes_of_members:
            self.passes_of_members[backend] = forward_pass(self.model, self.kernels, backend)
        return self.passes_of_members[backend]
