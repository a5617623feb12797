"""The recorded passes of one bucket: full ones, and piecewise ones around attention that is not recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from specserve.api import Cut, ForwardPass, GraphPlan, Recorder, Recording, Sampler
    from specserve.api.batch import Batch
    from specserve_graphs.adapters import GraphLora
    from specserve_graphs.cut_attention import CutAttention
    from specserve_graphs.memory import GraphMemory
    from specserve_graphs.mixer_inputs import MixerInputs

NO_ROWS = torch.empty((3, 0), dtype=torch.int64)


@dataclass(eq=False)
class RecordedStep:
    """`padded`: the bucket's batch in the memory, with a `GraphLora` where its steps have adapters. `taps`: where it
    copies hidden states."""

    memory: GraphMemory
    padded: Batch
    passes: ForwardPass
    taps: Mapping[int, Tensor]
    recording: Recording | None = field(default=None, init=False)

    @property
    def lora(self) -> GraphLora | None:
        lora: GraphLora | None = self.padded.lora  # type: ignore[assignment]
        return lora

    @property
    def computes_greedy(self) -> bool:
        return False

    def record(self, recorder: Recorder) -> None:
        """With padding in every row, so that no request and no slot of the cache is touched."""
        self.memory.rows.load(NO_ROWS, self.padded.num_rows)
        self.recording = recorder.record(self.compute)

    def compute(self, cut: Cut) -> None:
        """The function to record."""
        raise NotImplementedError

    def load(self, batch: Batch) -> str:
        """The batch becomes what is replayed next; rows that it lacks are padding. Empty, or why it does not fit."""
        self.memory.rows.load(batch.host_rows, self.padded.num_rows)
        if reason := self.load_plan(batch):
            return reason
        if self.lora is not None:
            assert batch.lora is not None, "a graph with adapters serves steps with adapters"
            self.lora.load(batch.lora)
        return ""

    def load_plan(self, batch: Batch) -> str:
        """Load the attention's plan. Returns why the batch does not fit, or an empty string."""
        raise NotImplementedError

    def replay(self) -> None:
        """What was loaded is not kept: adapters may be evicted before the next step, and plans are large."""
        assert self.recording is not None, "recorded before it is replayed"
        try:
            self.recording.replay()
        finally:
            self.forget()

    def forget(self) -> None:
        if self.lora is not None:
            self.lora.forget()


@dataclass(eq=False)
class FullGraph(RecordedStep):
    """A decode or verify step, from token ids to logits. With `sampler` to greedy tokens too."""

    plan: GraphPlan
    sampler: Sampler | None
    inputs: MixerInputs

    @property
    def computes_greedy(self) -> bool:
        return self.sampler is not None

    def record(self, recorder: Recorder) -> None:
        self.plan.clear()
        self.inputs.clear(self.padded)
        super().record(recorder)

    def load_plan(self, batch: Batch) -> str:
        return self.plan.load(batch) or self.inputs.load(batch, self.padded)

    def compute(self, cut: Cut) -> None:
        passes, padded, memory, rows = self.passes, self.padded, self.memory, self.padded.num_rows
        x = passes.layers(passes.embed(padded), padded, self.plan.plan, self.taps)
        logits = passes.logits(x, padded)
        memory.logits[:rows] = logits
        if self.sampler is not None:
            self.sampler.greedy_tokens(logits, memory.greedy[:rows])


@dataclass(eq=False)
class PiecewiseGraph(RecordedStep):
    """All layers but their attention. `attention`: the one that `passes` was made with."""

    attention: CutAttention

    def load_plan(self, batch: Batch) -> str:
        self.attention.load(batch)
        return ""

    def forget(self) -> None:
        super().forget()
        self.attention.forget()

    def compute(self, cut: Cut) -> None:
        passes, padded, rows = self.passes, self.padded, self.padded.num_rows
        self.attention.cut = cut
        x = passes.layers(passes.embed(padded), padded, None, self.taps)
        self.memory.x[:rows] = x[:rows]
