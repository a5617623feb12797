"""Drafts with a draft model: one pass over what it lacks of the committed tokens, then one pass per further level.

All requests of a step share the passes; one that wants fewer draft tokens takes part in fewer. Owns neither layers nor
arithmetic (`DraftModel`) nor what is committed (`specserve_draft_models.DraftModelRuntime`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import DrafterNeeds, ScoredRow
from specserve.api.models import inference
from specserve_draft_models import DraftModelRuntime
from specserve_eagle.depth import Depth, FixedDepth, choose_depth
from specserve_eagle.draft_model_drafter import DraftModelDrafter
from specserve_eagle.levels import Extent, add_level, begin_draft, grow_levels, rows_of
from specserve_eagle.options import AUTO

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.api import Draft, DraftPass, DraftResources, DraftStep, ForwardOutput, Verdict
    from specserve.api.batch import ScheduledBatch
    from specserve_draft_models import Feed
    from specserve_eagle.draft_model import DraftModel
    from specserve_eagle.growing import Growing
    from specserve_eagle.options import EagleOptions


class EagleDrafter(DraftModelDrafter):
    """All requests of a step share its passes."""

    def __init__(self, model: DraftModel, options: EagleOptions) -> None:
        self.model = model
        self.depth: Depth = FixedDepth()
        self.extent, self.topk = Extent.of(options), options.topk
        self.is_auto = options.steps == AUTO
        self.needs = DrafterNeeds(hidden_layers=model.hidden_layers, layers=model.layers)
        self.passes: DraftPass | None = None
        """Set by `connect`."""
        self.pass_seconds = 0.0
        """What each pass after the first took when it was asked last; 0 where there was none."""

    def connect(self, resources: DraftResources) -> None:
        self.runtime = DraftModelRuntime(self.model.layers, resources)
        self.passes = self.runtime.draft_pass(self.model.head)
        is_planned = resources.depth_is_planned and self.topk == 1
        self.depth = choose_depth(resources.costs, is_auto=self.is_auto, is_planned=is_planned)

    def propose(
        self, batch: ScheduledBatch, output: ForwardOutput, verdict: Verdict, limits: Sequence[int]
    ) -> list[Draft | None]:
        assert self.runtime is not None
        self.judge(batch, verdict)
        self.depth.begin(batch, verdict)
        feed = self.runtime.collect(batch, output, verdict, limits)
        self.pass_seconds = 0.0
        drafts: list[Draft | None] = [None] * len(limits)
        if feed is not None:
            for i, draft in zip(feed.drafting, self.drafts(feed, limits), strict=True):
                drafts[i] = draft.draft(self.name)
        return drafts

    @inference
    def drafts(self, feed: Feed, limits: Sequence[int]) -> list[Growing]:
        """Of the requests that the feed drafts for."""
        assert self.runtime is not None
        growing = self.begin(feed, limits)
        hidden = self.first_levels(feed, growing)
        self.runtime.done(feed)
        self.grow(growing, hidden)
        self.depth.end(growing)
        return growing

    def first_levels(self, feed: Feed, drafts: Sequence[Growing]) -> Tensor | None:
        """The pass over the committed tokens, whose scored rows are the drafts' roots. Chains take as many passes as
        need no decision in between, where the pass can do that. Returns the own hidden states of these rows."""
        assert self.passes is not None
        rows = [ScoredRow(i, draft.sequence.request, ()) for i, draft in enumerate(drafts)]
        steps = self.depth.ahead(drafts)
        if drafts and self.topk == 1:
            made = self.passes.chains(feed.batch, feed.hidden, rows, steps)
            if made is not None:
                for draft, chain, wanted in zip(drafts, made.tokens, steps, strict=True):
                    for token in chain:
                        draft.grow([[token]])
                    if len(chain) < wanted:
                        draft.grow([[]])
                self.depth.ran(made)
                if made.num_passes:
                    self.pass_seconds = made.seconds / made.num_passes
                return made.hidden
        step = self.passes.step(feed.batch, feed.hidden, rows, self.topk, from_target=True)
        add_level(drafts, step.tokens)
        return step.hidden

    def begin(self, feed: Feed, limits: Sequence[int]) -> list[Growing]:
        """A draft for each request that wants one, as large as it wants and as deep as its positions allow."""
        return [
            begin_draft(sequence, limits[i], self.extent, self.model.layers.max_len)
            for i, sequence in zip(feed.drafting, feed.sequences, strict=False)
        ]

    def grow(self, drafts: Sequence[Growing], hidden: Tensor | None) -> None:
        """hidden: [drafts, H], the own hidden states of their newest rows."""
        seconds = grow_levels(drafts, hidden, self.depth, self.step)
        self.pass_seconds = seconds or self.pass_seconds

    def step(self, drafts: Sequence[Growing], hidden: Tensor | None) -> DraftStep:
        """A pass over the newest levels."""
        assert self.runtime is not None
        assert self.passes is not None
        batch = self.runtime.draft_batch([draft.rows() for draft in drafts])
        return self.passes.step(batch, hidden, rows_of(drafts), self.topk, from_target=False)
