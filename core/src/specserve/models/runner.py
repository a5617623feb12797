"""Runs a batch through the model, and collects the hidden states that drafters need.

Knows nothing of requests, drafts or sampling, nor how a pass is computed: a kernel set may fuse the layers, and where
it does not they are called piece by piece.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.batch.hidden_states import HiddenBuffers
from specserve.inference import inference
from specserve.models.tiled import forward_pass
from specserve.types import ForwardOutput

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.kv.cache import KVCache
    from specserve.metrics import EngineMetrics
    from specserve.models.served_model import ServedModel
    from specserve.protocols import (
        AttentionBackend,
        DraftGraphs,
        ForwardPass,
        GraphMode,
        GraphShape,
        KernelSet,
        Phase,
        Recorder,
        Sampler,
    )
    from specserve_checks.json_types import JsonObject


class StepParts(NamedTuple):
    """What computes a step. `hidden_layers`: the layers whose outputs are needed; layer n's output has key n + 1, the
    embedding key 0. `graphs`: those that the attention backend states to serve."""

    model: ServedModel
    kernels: KernelSet
    attention: AttentionBackend
    hidden_layers: Collection[int] = ()
    graphs: tuple[GraphMode, ...] = ("piecewise", "full")


class RunnerParts(NamedTuple):
    """What a plugin makes a runner of. `generated`: the phase of generated positions in this engine, decode or verify.
    `make_recorder`: what a plugin has to record steps on the device, if any. `declines`: why plugins decline a shape,
    empty where none does. `free_memory`: bytes that could be allocated now. `cache`: of the target's layers."""

    step: StepParts
    sampler: Sampler
    generated: Phase
    make_recorder: Callable[[], Recorder | None]
    declines: Callable[[GraphShape], Sequence[str]]
    free_memory: Callable[[], int]
    metrics: EngineMetrics
    cache: KVCache


class Runner:
    """Runs every batch eagerly. A plugin's runner extends it."""

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

    def replay_guesses(self, batch: Batch) -> Tensor | None:
        """[scored rows, V]: the logits of a drafter's pass over guesses, from a graph. They may lie where the step's
        lay. None where it is to be computed."""
        return None

    def warm_up(self, on_progress: Callable[[int, int], None]) -> None:
        """Record before serving what steps may need. on_progress(done, all)."""

    def draft_graphs(self, attention: AttentionBackend, modes: Sequence[GraphMode]) -> DraftGraphs | None:
        """For the passes of a drafter whose layers this attention serves, with the graphs that it states to serve. None
        where nothing is recorded."""
        return None

    def describe_graphs(self) -> JsonObject:
        return {"mode": "none"}

    def check_device(self) -> None:
        """Raise where what computes steps is lost: then no request is the cause of a failing step, and the engine
        ends."""
        if self.model.device.type == "cuda":
            torch.cuda.synchronize()

    def watch(self, lost: Callable[[], None]) -> None:
        """Called once, before requests are served. Any thread may call `lost`: the engine then asks `check_device`
        before its next step, or at once where it is idle."""

    def close(self) -> None:
        """The engine is done."""
        self.model.part.close()

    def pass_of(self, backend: AttentionBackend) -> ForwardPass:
        if backend is self.attention:
            return self.passes
        if backend not in self.passes_of_members:
            self.passes_of_members[backend] = forward_pass(self.model, self.kernels, backend)
        return self.passes_of_members[backend]
