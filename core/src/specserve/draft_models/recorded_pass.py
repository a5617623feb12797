"""Passes of a draft model from recorded graphs: from token ids and hidden states to the last layer's output.

The logits of the scored rows and the choice of tokens follow, and are not recorded. Letters: R rows, W numbers of the
target's hidden state, H the draft model's hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from specserve.graphs.cut_attention import CutAttention
from specserve.graphs.eligibility import both, no_graphs
from specserve.graphs.recorded import RecordedStep
from specserve.graphs.shapes import shape_of
from specserve.inference import inference
from specserve.protocols import DraftPass
from specserve.types import GraphUse

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.draft_models.head_pass import PiecewisePass
    from specserve.graphs.buckets import Buckets
    from specserve.graphs.eligibility import Eligibility
    from specserve.graphs.library import GraphLibrary
    from specserve.models.decoder import DecoderModel
    from specserve.protocols import (
        AttentionBackend,
        Cut,
        DraftStep,
        ForwardPass,
        GraphMode,
        GraphPlan,
        GraphShape,
        Recorder,
        ScoredRow,
    )


class DraftKey(NamedTuple):
    """`specserve.graphs.library.GraphKey` of a draft model's passes."""

    mode: GraphMode
    rows: int
    requests: int
    """0 in piecewise graphs."""
    from_target: bool


class DraftGraphs(NamedTuple):
    """What passes of one draft model are recorded with. `modes`: what they are tried with, in this order;
    `of_attention`: what its attention states to serve; `counts`: of passes, by (mode, reason)."""

    modes: tuple[GraphMode, ...]
    of_attention: tuple[GraphMode, ...]
    rows: Buckets
    requests: Buckets
    library: GraphLibrary[DraftKey]
    eligibility: Eligibility
    counts: Counter[GraphUse]
    block_size: int


class DraftGraphMaker(NamedTuple):
    """`counts`: of all draft models' passes."""

    counts: Counter[GraphUse]
    make: Callable[[DecoderModel, tuple[GraphMode, ...]], DraftGraphs]
    """Of the model's decoder and the graphs that its attention states to serve."""


@dataclass(eq=False)
class RecordedDraft(RecordedStep):
    """`hidden`: [rows, W or H], None where the draft model reads none. `plan`: of a full graph; `attention`: the one of
    a piecewise graph."""

    pieces: PiecewisePass
    hidden: Tensor | None
    from_target: bool
    plan: GraphPlan | None
    attention: CutAttention

    def record(self, recorder: Recorder) -> None:
        if self.plan is not None:
            self.plan.clear()
        super().record(recorder)

    def compute(self, cut: Cut) -> None:
        rows, plan = self.padded.num_rows, None
        if self.plan is None:
            self.attention.cut = cut
        else:
            plan = self.plan.plan
        x = self.pieces.layers(self.passes, self.padded, plan, self.hidden, from_target=self.from_target)
        self.memory.x[:rows] = x[:rows]

    def load_plan(self, batch: Batch) -> str:
        if self.plan is not None:
            return self.plan.load(batch)
        self.attention.load(batch)
        return ""

    def forget(self) -> None:
        super().forget()
        self.attention.forget()


class RecordedDraftPass(DraftPass):
    """`specserve.protocols.DraftPass`. `pieces` computes what is not replayed; `make_pass`: over its layers."""

    def __init__(
        self, pieces: PiecewisePass, graphs: DraftGraphs, make_pass: Callable[[AttentionBackend], ForwardPass]
    ) -> None:
        self.pieces, self.graphs, self.memory = pieces, graphs, graphs.library.memory
        self.cut_attention = CutAttention(pieces.attention, self.memory)
        self.passes: dict[GraphMode, ForwardPass] = {
            "piecewise": make_pass(self.cut_attention),
            "full": make_pass(pieces.attention),
        }
        for passes in self.passes.values():
            passes.reserve(self.memory.most_rows)
        self.hidden: dict[bool, Tensor] = {}
        """What is read of the target's hidden states, and of own ones: by `from_target`."""

    @inference
    def step(
        self, batch: Batch, hidden: Tensor | None, rows: Sequence[ScoredRow], count: int, *, from_target: bool
    ) -> DraftStep:
        declined = ""
        for mode in self.graphs.modes:
            found = self.ready(mode, batch, hidden, from_target=from_target)
            if not isinstance(found, str):
                found.replay()
                self.graphs.counts[GraphUse(mode, declined)] += 1
                # a copy: own hidden states are kept for the next pass
                return self.pieces.choose(self.memory.x[: batch.num_rows].clone(), batch, rows, count)
            declined = both(declined, found)
        self.graphs.counts[GraphUse("none", declined)] += 1
        return self.pieces.step(batch, hidden, rows, count, from_target=from_target)

    def ready(self, mode: GraphMode, batch: Batch, hidden: Tensor | None, *, from_target: bool) -> RecordedStep | str:
        """A graph with this pass in its memory, or why there is none."""
        graphs = self.graphs
        if mode not in graphs.of_attention:
            return no_graphs(self.pieces.attention.name, mode)
        if reason := graphs.eligibility.declined(shape_of_pass(mode, batch)):
            return reason
        num_rows, requests = graphs.rows.holding(batch.num_rows), graphs.requests.holding(len(batch.spans))
        if num_rows is None or requests is None:
            return graphs.rows.exceeded("rows") if num_rows is None else graphs.requests.exceeded("requests")
        if hidden is not None:
            self.hidden_memory(hidden, from_target=from_target)[: len(hidden)] = hidden
        found = graphs.library.find(DraftKey(mode, num_rows, requests if mode == "full" else 0, from_target), self.make)
        return found if isinstance(found, str) else found.load(batch) or found

    def hidden_memory(self, like: Tensor, *, from_target: bool) -> Tensor:
        if from_target not in self.hidden:
            self.hidden[from_target] = like.new_zeros((self.memory.most_rows, like.shape[1]))
        return self.hidden[from_target]

    def make(self, key: DraftKey) -> RecordedStep | str:
        """What is to be recorded, or why it cannot be."""
        backend = self.pieces.attention
        padded = self.memory.rows.padded(key.rows, self.graphs.block_size)
        plan = backend.graph_plan(padded, key.requests) if key.mode == "full" else None
        if key.mode == "full" and plan is None:
            return no_graphs(backend.name, "full")
        hidden = self.hidden[key.from_target][: key.rows] if self.pieces.head.reads_hidden else None
        return RecordedDraft(
            self.memory, padded, self.passes[key.mode], {},
            self.pieces, hidden, key.from_target, plan, self.cut_attention,
        )  # fmt: skip


def shape_of_pass(mode: GraphMode, batch: Batch) -> GraphShape:
    shape = shape_of(batch, "decode", ())
    return msgspec.structs.replace(shape, mode=mode, phases=("decode",), is_draft_model=True)
