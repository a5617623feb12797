"""Drafts with a draft model: one pass over what it lacks of the committed tokens, then one pass per further level.

All requests of a step share the passes; one that wants fewer draft tokens takes part in fewer. Owns neither layers nor
arithmetic (`DraftModel`) nor what is committed (`specserve.protocols.DraftRuntime`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from specserve.batch.builder import to_device
from specserve.protocols import DrafterNeeds
from specserve_eagle.growing import GrowingDraft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.batch.request import Request
    from specserve.protocols import DraftRuntime, Feed
    from specserve.types import Draft, ForwardOutput, Verdict
    from specserve_eagle.choosing import TokenChooser
    from specserve_eagle.options import EagleOptions
    from specserve_eagle.passes import DraftModel, DraftStep


class EagleDrafter:
    """`specserve.protocols.ModelDrafter`."""

    name = "eagle"

    def __init__(self, model: DraftModel, chooser: TokenChooser, options: EagleOptions) -> None:
        self.model, self.chooser = model, chooser
        self.steps, self.topk, self.max_nodes = options.max_steps, options.topk, options.max_nodes
        self.needs = DrafterNeeds(hidden_layers=model.hidden_layers, layers=model.layers)
        self.runtime: DraftRuntime | None = None
        """Set by `connect`, which start-up calls before any request."""

    def connect(self, runtime: DraftRuntime) -> None:
        self.runtime = runtime
        self.model.connect(runtime)

    def start(self, request: Request) -> None:
        assert self.runtime is not None
        self.runtime.start(request)

    def stop(self, request: Request) -> None:
        assert self.runtime is not None
        self.runtime.stop(request)

    @torch.inference_mode()
    def propose(
        self, batch: Batch, output: ForwardOutput, verdict: Verdict, limits: Sequence[int]
    ) -> list[Draft | None]:
        assert self.runtime is not None
        drafts: list[Draft | None] = [None] * len(limits)
        feed = self.runtime.collect(batch, output, verdict, limits)
        if feed is None:
            return drafts
        step = self.model.read_committed(feed)
        self.runtime.done(feed)
        if feed.drafting:
            growing = self.begin(feed, limits)
            self.grow(growing, step)
            for i, draft in zip(feed.drafting, growing, strict=True):
                drafts[i] = draft.draft(self.name)
        return drafts

    def begin(self, feed: Feed, limits: Sequence[int]) -> list[GrowingDraft]:
        """A draft for each request that wants one, as large as it wants and as deep as its positions allow."""
        longest = self.model.layers.max_len
        return [
            GrowingDraft(
                sequence,
                limit=min(limits[i], self.max_nodes),
                steps=min(self.steps, limits[i], longest - len(sequence.request.tokens)),
                topk=self.topk,
            )
            for i, sequence in zip(feed.drafting, feed.sequences, strict=False)
        ]

    def grow(self, drafts: Sequence[GrowingDraft], step: DraftStep) -> None:
        """`step`: of the pass over the committed tokens, whose scored rows are the drafts' roots."""
        assert self.runtime is not None
        while True:
            parents = self.add_level(drafts, step.logits)
            growing = [draft for draft in drafts if not draft.is_done]
            if not growing:
                return
            rows = [parents[id(draft)] + draft.index_in_level(node) for draft in growing for node in draft.level]
            batch = self.runtime.draft_batch([draft.rows() for draft in growing])
            step = self.model.read_drafted(batch, rows_of(step.hidden, rows))
            drafts = growing

    def add_level(self, drafts: Sequence[GrowingDraft], logits: Tensor) -> dict[int, int]:
        """Give every draft the children of its level's nodes. By id of a draft: the first row of its level."""
        rows = [(draft.sequence.request, draft.path(node)) for draft in drafts for node in draft.level]
        choices = self.chooser.choose(logits, rows, self.topk)
        first, begins = 0, {}
        for draft in drafts:
            begins[id(draft)] = first
            count = len(draft.level)
            draft.grow(choices[first : first + count])
            first += count
        return begins


def rows_of(hidden: Tensor | None, rows: Sequence[int]) -> Tensor | None:
    """The hidden states of these rows."""
    if hidden is None or list(rows) == list(range(len(hidden))):
        return hidden
    return hidden.index_select(0, to_device(rows, hidden.device))
