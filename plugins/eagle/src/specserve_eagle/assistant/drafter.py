"""Drafts with an assistant. It keeps nothing of a request: the target's cache and the step's hidden states are all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import DrafterNeeds
from specserve.api.batch import to_device
from specserve.api.models import inference
from specserve_draft_models import FedSequence
from specserve_draft_models.idle_steps import committed_rows
from specserve_eagle.assistant.passes import AssistantPass
from specserve_eagle.depth import Depth, FixedDepth, choose_depth
from specserve_eagle.draft_model_drafter import WatchedDrafter
from specserve_eagle.levels import Extent, begin_draft, grow_levels, rows_of
from specserve_eagle.options import AUTO

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.api import Draft, DraftStep, ForwardOutput, SpanVerdict, TargetKeyResources, Verdict
    from specserve.api.batch import ScheduledBatch, ScheduledSpan
    from specserve.api.models import DecoderModel
    from specserve_eagle.assistant.load import Assistant
    from specserve_eagle.growing import Growing
    from specserve_eagle.options import EagleOptions


class AssistantDrafter(WatchedDrafter):
    """All requests of a step share its passes."""

    def __init__(self, assistant: Assistant, target: DecoderModel, options: EagleOptions) -> None:
        self.assistant, self.target = assistant, target
        self.depth: Depth = FixedDepth()
        self.extent, self.topk = Extent.of(options), options.topk
        self.is_auto = options.steps == AUTO
        self.needs = DrafterNeeds(hidden_layers=(target.num_layers,), target_keys=assistant.keys)
        self.passes: AssistantPass | None = None
        """Set by `connect_target_keys`."""

    def connect_target_keys(self, keys: TargetKeyResources) -> None:
        self.passes = AssistantPass(self.assistant, self.target, keys.reader)
        is_planned = keys.depth_is_planned and self.topk == 1
        self.depth = choose_depth(keys.costs, is_auto=self.is_auto, is_planned=is_planned)

    def propose(
        self, batch: ScheduledBatch, output: ForwardOutput, verdict: Verdict, limits: Sequence[int]
    ) -> list[Draft | None]:
        self.judge(batch, verdict)
        self.depth.begin(batch, verdict)
        self.pass_seconds = 0.0
        drafts: list[Draft | None] = [None] * len(limits)
        growing: dict[int, Growing] = {}
        rows: list[int] = []
        for i, (span, limit) in enumerate(zip(batch.spans, limits, strict=True)):
            row = last_row(span, verdict.spans[i], batch.row_offsets[i]) if limit else None
            if row is not None and len(span.request.tokens) < self.assistant.max_len:
                sequence = FedSequence.of(span.request)
                growing[i] = begin_draft(sequence, limit, self.extent, self.assistant.max_len)
                rows.append(row)
        if growing:
            self.fill([*growing.values()], output.hidden[self.target.num_layers], rows)
            for i, draft in growing.items():
                drafts[i] = draft.draft(self.name)
        return drafts

    def observe_step(self, batch: ScheduledBatch, output: ForwardOutput, verdict: Verdict) -> None:
        self.judge(batch, verdict)
        self.depth.begin(batch, verdict)

    @inference
    def fill(self, drafts: Sequence[Growing], hidden: Tensor, rows: Sequence[int]) -> None:
        """hidden: of the target's last layer; rows: those of the drafts' requests."""
        assert self.passes is not None
        try:
            states = self.passes.from_target(hidden.index_select(0, to_device(rows, hidden.device)))
            self.depth.ahead(drafts)
            first = self.step(drafts, states)
            for draft, tokens in zip(drafts, first.tokens, strict=True):
                draft.grow([tokens])
            self.pass_seconds = grow_levels(drafts, first.hidden, self.depth, self.step)
            self.depth.end(drafts)
        finally:
            self.passes.forget()

    def step(self, drafts: Sequence[Growing], hidden: Tensor | None) -> DraftStep:
        """A pass over the newest levels."""
        assert self.passes is not None
        assert hidden is not None
        return self.passes.step(rows_of(drafts), hidden, self.topk)


def last_row(span: ScheduledSpan, decided: SpanVerdict, offset: int) -> int | None:
    """The row of the step whose token came last; None where tokens before that one are still to be computed."""
    request = span.request
    if request.computed != len(request.tokens) - 1:
        return None
    return committed_rows(span, decided, offset)[request.computed - 1 - span.start]
