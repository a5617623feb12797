"""Drafts with a P-EAGLE head: one pass for all draft tokens of all requests of a step.

Behind a request's last token the pass has masks, each of which sees the rows before it and proposes the token that
comes next. So the tokens of a draft are chosen independently of each other. Where a request has processors, which read
the path before a token, its masks are computed one after the other.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from specserve.api import DrafterNeeds, ScoredRow
from specserve.api.models import inference
from specserve.api.sampling import chain_of, first_of_each
from specserve_draft_models import DraftModelRuntime, DraftRows
from specserve_eagle.draft_model_drafter import DraftModelDrafter
from specserve_eagle.options import MAX_STEPS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from specserve.api import Draft, DraftPass, DraftResources, DraftToken, ForwardOutput, Verdict
    from specserve.api.batch import Request, ScheduledBatch
    from specserve_draft_models import FedSequence, Feed
    from specserve_eagle.draft_model import DraftModel


class ParallelDrafter(DraftModelDrafter):
    """`most`: draft tokens of a request at most."""

    def __init__(self, model: DraftModel, most: int) -> None:
        assert model.masks is not None, "a head without masks takes a pass for each draft token"
        self.model, self.masks, self.most = model, model.masks, min(most, MAX_STEPS)
        self.needs = DrafterNeeds(hidden_layers=model.hidden_layers, layers=model.layers)
        self.passes: DraftPass | None = None
        """Set by `connect`."""

    def connect(self, resources: DraftResources) -> None:
        self.runtime = DraftModelRuntime(self.model.layers, resources, self.masks)
        self.passes = self.runtime.draft_pass(self.model.head)

    def propose(
        self, batch: ScheduledBatch, output: ForwardOutput, verdict: Verdict, limits: Sequence[int]
    ) -> list[Draft | None]:
        assert self.runtime is not None
        self.judge(batch, verdict)
        num_masks = [
            self.num_masks(span.request, limit) if limit else 0 for span, limit in zip(batch.spans, limits, strict=True)
        ]
        feed = self.runtime.collect(batch, output, verdict, limits, num_masks)
        drafts: list[Draft | None] = [None] * len(limits)
        if feed is not None:
            for i, chain in zip(feed.drafting, self.chains(feed, limits), strict=True):
                drafts[i] = chain_of(chain, self.name)
        return drafts

    def num_wanted(self, request: Request, limit: int) -> int:
        """Draft tokens: fewer at the end of the context."""
        return min(limit, self.most, self.model.layers.max_len - len(request.tokens))

    def num_masks(self, request: Request, limit: int) -> int:
        """Masks of the pass over committed tokens."""
        return 0 if request.processors else max(0, self.num_wanted(request, limit) - 1)

    @inference
    def chains(self, feed: Feed, limits: Sequence[int]) -> list[list[DraftToken]]:
        """Of the requests that the feed drafts for."""
        assert self.runtime is not None
        assert self.passes is not None
        sequences = feed.sequences[: len(feed.drafting)]
        sizes = [1 + span.drafted for span in feed.batch.spans[: len(feed.drafting)]]
        paths = [(each.request, path) for each, n in zip(sequences, sizes, strict=True) for path in self.paths(n)]
        rows = [ScoredRow(i, request, path) for i, (request, path) in enumerate(paths)]
        step = self.passes.step(feed.batch, feed.hidden, rows, 1, from_target=True)
        self.runtime.done(feed)
        places = iter(step.tokens)
        chains = [first_of_each([next(places) for _ in range(size)]) for size in sizes]
        wanted = [self.num_wanted(each.request, limits[i]) for i, each in zip(feed.drafting, sequences, strict=True)]
        self.go_on(sequences, chains, wanted)
        return chains

    def paths(self, size: int) -> Iterator[tuple[int, ...]]:
        """In front of each row's token; their length alone matters where a request has no processors."""
        return ((self.masks.token,) * depth for depth in range(size))

    def go_on(
        self, sequences: Sequence[FedSequence], chains: Sequence[list[DraftToken]], wanted: Sequence[int]
    ) -> None:
        """One mask after the other, where processors read the path."""
        assert self.runtime is not None
        assert self.passes is not None
        for depth in count(1):
            going = [
                i
                for i, sequence in enumerate(sequences)
                if sequence.request.processors and len(chains[i]) == depth < wanted[i]
            ]
            if not going:
                return
            masks = (self.masks.token,) * depth
            batch = self.runtime.draft_batch([DraftRows(sequences[i], masks, first=depth - 1) for i in going])
            paths = [tuple(token for token, _ in chains[i]) for i in going]
            rows = [ScoredRow(k, sequences[i].request, paths[k]) for k, i in enumerate(going)]
            hidden = self.masks.hidden.expand(len(going), -1).contiguous()
            step = self.passes.step(batch, hidden, rows, 1, from_target=True)
            for i, tokens in zip(going, step.tokens, strict=True):
                chains[i] += tokens
