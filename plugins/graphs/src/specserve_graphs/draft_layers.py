"""Graphs of a draft model's layers: from token ids and hidden states to the last layer's output.

What follows, from logits to draft tokens, is not recorded. Letters: R rows, W numbers of the target's hidden state, H
the draft model's hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from specserve.api import GraphUse
from specserve_graphs.cut_attention import CutAttention
from specserve_graphs.eligibility import both, no_graphs
from specserve_graphs.recorded import RecordedStep
from specserve_graphs.shapes import shape_of

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from torch import Tensor

    from specserve.api import (
        AttentionBackend,
        Cut,
        ForwardPass,
        GraphMode,
        GraphPlan,
        GraphShape,
        LayersFunction,
        Recorder,
    )
    from specserve.api.batch import Batch
    from specserve_graphs.buckets import Buckets
    from specserve_graphs.eligibility import Eligibility
    from specserve_graphs.library import GraphLibrary
    from specserve_graphs.mixer_inputs import MixerInputs


class DraftKey(NamedTuple):
    """`specserve_graphs.library.GraphKey` of a draft model's passes."""

    mode: GraphMode
    rows: int
    requests: int
    """0 in piecewise graphs."""
    from_target: bool


class DraftGraphSettings(NamedTuple):
    """What passes of one draft model are recorded with. `modes`: what they are tried with, in this order;
    `of_attention`: what its attention states to serve; `counts`: of the passes of all draft models."""

    modes: tuple[GraphMode, ...]
    of_attention: tuple[GraphMode, ...]
    rows: Buckets
    requests: Buckets
    library: GraphLibrary[DraftKey]
    eligibility: Eligibility
    counts: Counter[GraphUse]
    block_size: int


@dataclass(eq=False)
class RecordedDraft(RecordedStep):
    """`hidden`: [rows, W or H], None where the draft model reads none. `plan`: of a full graph; `attention`: the one of
    a piecewise graph."""

    function: LayersFunction
    hidden: Tensor | None
    from_target: bool
    plan: GraphPlan | None
    attention: CutAttention
    inputs: MixerInputs

    def record(self, recorder: Recorder) -> None:
        if self.plan is not None:
            self.plan.clear()
            self.inputs.clear(self.padded)
        super().record(recorder)

    def compute(self, cut: Cut) -> None:
        rows, plan = self.padded.num_rows, None
        if self.plan is None:
            self.attention.cut = cut
        else:
            plan = self.plan.plan
        x = self.function(self.passes, self.padded, plan, self.hidden, from_target=self.from_target)
        self.memory.x[:rows] = x[:rows]

    def load_plan(self, batch: Batch) -> str:
        if self.plan is not None:
            return self.plan.load(batch) or self.inputs.load(batch, self.padded)
        self.attention.load(batch)
        return ""

    def forget(self) -> None:
        super().forget()
        self.attention.forget()


class GraphedLayers:
    """`specserve.api.DraftReplays`. `make_pass`: over the model's layers, by an attention backend."""

    def __init__(
        self,
        function: LayersFunction,
        attention: AttentionBackend,
        make_pass: Callable[[AttentionBackend], ForwardPass],
        settings: DraftGraphSettings,
        inputs: MixerInputs,
    ) -> None:
        self.function, self.attention, self.settings, self.inputs = function, attention, settings, inputs
        self.memory = settings.library.memory
        self.cut_attention = CutAttention(attention, self.memory, inputs.model.reach)
        self.passes: dict[GraphMode, ForwardPass] = {
            "piecewise": make_pass(self.cut_attention),
            "full": make_pass(attention),
        }
        for passes in self.passes.values():
            passes.reserve(self.memory.max_rows)
        self.hidden: dict[bool, Tensor] = {}
        """By `from_target`: memory for the hidden states of the target, and for own ones."""

    def replay(self, batch: Batch, hidden: Tensor | None, *, from_target: bool) -> Tensor | None:
        declined = ""
        for mode in self.settings.modes:
            found = self.ready(mode, batch, hidden, from_target=from_target)
            if not isinstance(found, str):
                found.replay()
                self.settings.counts[GraphUse(mode, declined)] += 1
                return self.memory.x[: batch.num_rows].clone()  # own hidden states are kept for the next pass
            declined = both(declined, found)
        self.settings.counts[GraphUse("none", declined)] += 1
        return None

    def ready(self, mode: GraphMode, batch: Batch, hidden: Tensor | None, *, from_target: bool) -> RecordedStep | str:
        """A graph with this pass in its memory, or why there is none."""
        settings = self.settings
        if mode not in settings.of_attention:
            return no_graphs(self.attention.name, mode)
        if reason := settings.eligibility.declined(shape_of_pass(mode, batch)):
            return reason
        num_rows, requests = settings.rows.holding(batch.num_rows), settings.requests.holding(len(batch.spans))
        if num_rows is None or requests is None:
            return settings.rows.exceeded("rows") if num_rows is None else settings.requests.exceeded("requests")
        if hidden is not None:
            self.hidden_memory(hidden, from_target=from_target)[: len(hidden)] = hidden
        key = DraftKey(mode, num_rows, requests if mode == "full" else 0, from_target)
        found = settings.library.find(key, self.make)
        return found if isinstance(found, str) else found.load(batch) or found

    def hidden_memory(self, like: Tensor, *, from_target: bool) -> Tensor:
        if from_target not in self.hidden:
            self.hidden[from_target] = like.new_zeros((self.memory.max_rows, like.shape[1]))
        return self.hidden[from_target]

    def make(self, key: DraftKey) -> RecordedStep | str:
        """The step to record, or why there can be none."""
        padded, plan = self.memory.rows.padded(key.rows, self.settings.block_size), None
        if key.mode == "full":
            plan, given = self.attention.graph_plan(padded, key.requests), self.inputs.given(padded, key.requests)
            if plan is None or isinstance(given, str):
                return given if isinstance(given, str) else no_graphs(self.attention.name, "full")
            padded = given
        hidden = self.hidden.get(key.from_target)
        return RecordedDraft(
            self.memory, padded, self.passes[key.mode], {},
            self.function, None if hidden is None else hidden[: key.rows], key.from_target, plan, self.cut_attention,
            self.inputs,
        )  # fmt: skip


def shape_of_pass(mode: GraphMode, batch: Batch) -> GraphShape:
    shape = shape_of(batch, "decode", ())
    return msgspec.structs.replace(shape, mode=mode, phases=("decode",), is_draft_model=True)
