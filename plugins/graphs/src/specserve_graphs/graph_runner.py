"""Runs batches from recorded graphs where it may, else eagerly, and says for every step which and why.

A decode or verify step is replayed from a full graph, else from a piecewise one; any other step from a piecewise one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

import msgspec

from specserve.api import AdapterLimits, ForwardOutput, ForwardPass, GraphUse, PluginError
from specserve.api.batch import HiddenStates
from specserve.api.graphs import Runner
from specserve.api.models import LowRankDelta, forward_pass, inference
from specserve_graphs.adapters import GraphLora
from specserve_graphs.cut_attention import CutAttention
from specserve_graphs.draft_graphs import RunnerDraftGraphs, TargetGraphs
from specserve_graphs.eligibility import both, no_graphs
from specserve_graphs.mixer_inputs import MixerInputs
from specserve_graphs.recorded import FullGraph, PiecewiseGraph, RecordedStep
from specserve_graphs.settings import MODES, StepKey
from specserve_graphs.shapes import PREFILL, shape_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from torch import Tensor

    from specserve.api import (
        AdaptableProjection,
        AttentionBackend,
        Delta,
        GraphAdapters,
        GraphMode,
        GraphShape,
        JsonObject,
    )
    from specserve.api.batch import Batch
    from specserve.api.graphs import StepParts
    from specserve_graphs.eligibility import Eligibility
    from specserve_graphs.library import GraphLibrary
    from specserve_graphs.settings import GraphSettings


class GraphRunner(Runner):
    """A runner with graphs."""

    def __init__(
        self, step: StepParts, library: GraphLibrary[StepKey], eligibility: Eligibility, settings: GraphSettings
    ) -> None:
        super().__init__(step)
        self.library, self.eligibility, self.settings = library, eligibility, settings
        self.row_buckets = settings.rows.sizes
        self.memory, self.attention_graphs = library.memory, step.graphs
        again = library.budget.recorder.calls_again
        self.mixer_inputs = MixerInputs(self.model, self.kernels, self.memory, again=again)
        self.cut_attention = CutAttention(self.attention, self.memory, self.model.reach)
        self.pieces = self.own_pass(self.cut_attention)
        self.full_passes: dict[AttentionBackend, ForwardPass] = {}
        """By the backend that serves the batch. Not those of eager steps, whose memory grows with the largest step."""
        self.adapted_projections = [
            name for name, projection in self.model.projections.items() if any(map(is_low_rank, projection.deltas))
        ]
        self.foreign_delta = foreign_delta(self.model.projections.values())

    @inference
    def forward(self, batch: Batch) -> ForwardOutput:
        """Launch the forward pass; on CUDA this returns before it is done."""
        found, use = self.find(batch, self.hidden.layers)
        if found is None:
            return super().forward(batch)._replace(graph=use)
        found.replay()
        return self.output(found, batch, use)

    @inference
    def replay_guesses(self, batch: Batch) -> Tensor | None:
        found, use = self.find(batch, ())
        self.library.metrics.graph_draft_passes[use] += 1
        if found is None:
            return None
        found.replay()
        return self.logits(batch, use)

    # --- before a replay ----------------------------------------------------------------------------

    def find(self, batch: Batch, hidden_layers: tuple[int, ...]) -> tuple[RecordedStep | None, GraphUse]:
        """A graph that reads these layers, with this batch in its memory, if there is any; which, and why no better
        one."""
        shape = shape_of(batch, self.settings.generated, hidden_layers)
        is_decode = PREFILL not in shape.phases and batch.num_scored == batch.num_rows
        declined = ""
        for mode in MODES[self.settings.mode] if is_decode else MODES["piecewise"]:
            found = self.ready(msgspec.structs.replace(shape, mode=mode), batch)
            if not isinstance(found, str):
                return found, GraphUse(mode, declined)
            declined = both(declined, found)
        return None, GraphUse("none", declined)

    def ready(self, shape: GraphShape, batch: Batch) -> RecordedStep | str:
        """A graph with this batch in its memory, or why there is none."""
        if reason := self.eligibility.declined(shape):
            return reason
        key = self.key_of(shape, batch)
        if isinstance(key, str):
            return key
        found = self.library.find(key, self.make)
        return found if isinstance(found, str) else found.load(batch) or found

    def key_of(self, shape: GraphShape, batch: Batch) -> StepKey | str:
        settings, backend, mode = self.settings, self.attention, shape.mode
        if mode not in self.attention_graphs:
            return no_graphs(backend.backend_for(batch).name, mode)
        rows, requests = settings.rows.holding(shape.rows), settings.requests.holding(shape.requests)
        if rows is None or requests is None:
            return settings.rows.exceeded("rows") if rows is None else settings.requests.exceeded("requests")
        segments = rank = 0
        if shape.lora_segments:
            if not shape.lora_rank:
                return "the LoRA planner does not say what ranks its adapters have"
            segments, rank = (doubling_above(count) for count in (shape.lora_segments, shape.lora_rank))
        greedy = False
        if mode == "full":
            backend = backend.backend_for(batch)
            greedy = settings.greedy_sampler is not None and any(span.is_greedy for span in batch.spans)
        else:
            requests = 0
        return StepKey(mode, rows, requests, shape.hidden_layers, segments, rank, greedy, backend)

    # --- recording ----------------------------------------------------------------------------------

    def make(self, key: StepKey) -> RecordedStep | str:
        """The step to record, or why there can be none."""
        if self.foreign_delta:
            return self.foreign_delta
        lora = None
        if key.lora_segments:
            lora = self.make_lora(key)
            if lora is None:
                return f"kernels {self.kernels.name} record no adapters"
        padded = self.memory.rows.padded(key.rows, self.settings.block_size, lora)
        taps = self.memory.taps(key.hidden_layers, key.rows)
        if key.mode == "piecewise":
            return PiecewiseGraph(self.memory, padded, self.pieces, taps, self.cut_attention)
        plan, given = key.backend.graph_plan(padded, key.requests), self.mixer_inputs.given(padded, key.requests)
        if plan is None or isinstance(given, str):
            return given if isinstance(given, str) else no_graphs(key.backend.name, "full")
        sampler = self.settings.greedy_sampler if key.greedy else None
        return FullGraph(self.memory, given, self.full_pass(key.backend), taps, plan, sampler, self.mixer_inputs)

    @inference
    def warm_up(self, on_progress: Callable[[int, int], None]) -> None:
        """Record what steps without adapters may need, the smallest first: they are the most frequent."""
        keys = [key for key in self.warm_up_keys() if key.mode in self.attention_graphs]
        for done, key in enumerate(keys):
            self.library.find(key, self.make)
            on_progress(done + 1, len(keys))

    def warm_up_keys(self) -> Iterator[StepKey]:
        settings, layers = self.settings, self.hidden.layers
        if settings.mode == "full":
            backend = self.attention.backend_for(self.memory.rows.padded(1, settings.block_size))
            for rows, requests in settings.decode_buckets():
                for greedy in (True, False) if settings.greedy_sampler is not None else (False,):
                    yield StepKey("full", rows, requests, layers, 0, 0, greedy, backend)
        for rows in settings.rows.sizes:
            yield StepKey("piecewise", rows, 0, layers, 0, 0, False, self.attention)

    def make_lora(self, key: StepKey) -> GraphLora | None:
        limits = AdapterLimits(key.rows, key.lora_segments, key.lora_rank)
        make = partial(self.kernels.graph_adapters, self.adapted_projections, limits)
        made = make()
        if made is None or not (made.segments or self.library.budget.recorder.calls_again):
            return None  # what is recorded for no segment would add nothing for any
        return GraphLora(cast("Callable[[], GraphAdapters]", make))

    def full_pass(self, backend: AttentionBackend) -> ForwardPass:
        if backend not in self.full_passes:
            self.full_passes[backend] = self.own_pass(backend)
        return self.full_passes[backend]

    def own_pass(self, attention: AttentionBackend) -> ForwardPass:
        passes = forward_pass(self.model, self.kernels, attention)
        if not isinstance(passes, ForwardPass):
            raise PluginError(
                f"kernels {self.kernels.name}: their fused forward pass does not extend "
                "specserve.api.ForwardPass. Let it, or pass --graphs none."
            )
        passes.reserve(self.memory.max_rows)
        return passes

    def draft_graphs(self, attention: AttentionBackend, modes: Sequence[GraphMode]) -> RunnerDraftGraphs:
        settings, library = self.settings, self.library
        shared = TargetGraphs(
            modes=MODES[settings.mode],
            rows=settings.rows,
            requests=settings.requests,
            block_size=settings.block_size,
            budget=library.budget,
            eligibility=self.eligibility,
            kernels=self.kernels,
            metrics=library.metrics,
        )
        return RunnerDraftGraphs(shared, attention, modes)

    def describe_graphs(self) -> JsonObject:
        library, settings = self.library, self.settings
        keys, failed = list(library.recorded), list(library.failed.items())
        return {
            "mode": settings.mode,
            "recorder": library.budget.recorder.name,
            "row_buckets": settings.rows.sizes,
            "without": settings.without,
            "recorded": {mode: sum(key.mode == mode for key in keys) for mode in MODES[settings.mode]},
            "bytes": library.budget.num_bytes,
            "max_bytes": library.budget.max_bytes,
            "not_recorded": [{"mode": key.mode, "rows": key.rows, "reason": reason} for key, reason in failed],
        }

    # --- after a replay -----------------------------------------------------------------------------

    def output(self, replayed: RecordedStep, batch: Batch, use: GraphUse) -> ForwardOutput:
        rows = batch.num_rows
        greedy = self.memory.greedy[:rows] if replayed.computes_greedy else None
        return ForwardOutput(self.logits(batch, use), self.hidden_of_step(replayed.taps, rows), use, greedy)

    def logits(self, batch: Batch, use: GraphUse) -> Tensor:
        if use.mode == "piecewise":
            return self.pieces.logits(self.memory.x[: batch.num_rows], batch)
        return self.memory.logits[: batch.num_rows]

    def hidden_of_step(self, taps: Mapping[int, Tensor], rows: int) -> Mapping[int, Tensor]:
        """A copy: drafters keep the hidden states of several steps."""
        if not isinstance(taps, HiddenStates):
            return {}
        copy = self.hidden.of_step(self.memory.x, rows)
        assert isinstance(copy, HiddenStates), "of the same layers"
        copy.rows.copy_(taps.source[:rows])
        return copy


def is_low_rank(delta: Delta) -> bool:
    return isinstance(delta, LowRankDelta)


def foreign_delta(projections: Iterable[AdaptableProjection]) -> str:
    """The reason against graphs where a projection has an addition that only its owner knows to load."""
    for projection in projections:
        for delta in projection.deltas:
            if not is_low_rank(delta):
                return f"projection {projection.name} has a delta of an unknown kind, {type(delta).__name__}"
    return ""


def doubling_above(count: int) -> int:
    """The next power of two."""
    return 1 << (count - 1).bit_length()
