"""Drafts with a block head: one pass for all requests of a step, whatever the length of their drafts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve.api import DrafterNeeds
from specserve.api.models import inference
from specserve.api.sampling import chain_of
from specserve_draft_models import DraftModelRuntime, DraftRows
from specserve_eagle.block.block_pass import PiecewiseBlockPass
from specserve_eagle.block.counted_pass import CountedBlockPass
from specserve_eagle.draft_model_drafter import DraftModelDrafter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.api import BlockPass, Draft, DraftResources, ForwardOutput, Verdict
    from specserve.api.batch import Batch, Request, ScheduledBatch
    from specserve_draft_models import FedSequence, Feed
    from specserve_eagle.block.load import BlockModel


class Wanted(NamedTuple):
    """A draft of one request."""

    sequence: FedSequence
    places: int
    """Draft tokens one behind the other at most."""
    limit: int
    """Draft tokens at most."""

    @property
    def request(self) -> Request:
        return self.sequence.request


class BlockDrafter(DraftModelDrafter):
    """Drafts chains. `most`: draft tokens of a request one behind the other at most."""

    def __init__(self, model: BlockModel, most: int) -> None:
        self.model, self.config, self.most = model, model.config, min(most, model.config.num_proposed)
        self.needs = DrafterNeeds(hidden_layers=self.config.hidden_layers, layers=model.layers)
        self.passes: BlockPass | None = None
        """Set by `connect`."""

    def connect(self, resources: DraftResources) -> None:
        self.runtime = DraftModelRuntime(self.model.layers, resources)
        self.pieces = PiecewiseBlockPass(self.model.head, resources.attention)
        fused = resources.kernels.fuse_blocks(self.model.head, self.pieces, resources.attention)
        passes = self.pieces if fused is None else fused
        self.passes = passes if resources.graphs is None else CountedBlockPass(passes, resources.graphs)
        self.runtime.passes = self.passes

    def propose(
        self, batch: ScheduledBatch, output: ForwardOutput, verdict: Verdict, limits: Sequence[int]
    ) -> list[Draft | None]:
        assert self.runtime is not None
        self.judge(batch, verdict)
        feed = self.runtime.collect(batch, output, verdict, limits)
        drafts: list[Draft | None] = [None] * len(limits)
        if feed is not None:
            for i, draft in zip(feed.drafting, self.drafts(feed, limits), strict=True):
                drafts[i] = draft
        return drafts

    @inference
    def drafts(self, feed: Feed, limits: Sequence[int]) -> list[Draft | None]:
        """Of the requests that the feed drafts for."""
        assert self.runtime is not None
        assert self.passes is not None
        drafts: list[Draft | None] = [None] * len(feed.drafting)
        sequences = feed.sequences[: len(feed.drafting)]
        asked = [self.wanted(sequence, limits[i]) for i, sequence in zip(feed.drafting, sequences, strict=True)]
        drafting = [i for i, wanted in enumerate(asked) if wanted.places > 0]
        if drafting:
            assert feed.hidden is not None, "a block head reads hidden states"
            some = [asked[i] for i in drafting]
            rows = [self.rows(wanted.sequence) for wanted in some]
            blocks = self.runtime.draft_batch(rows, sees_ahead=not self.config.is_causal)
            for i, draft in zip(drafting, self.drafts_of(feed.batch, feed.hidden, blocks, some), strict=True):
                drafts[i] = draft
        else:
            self.passes.step(feed.batch, feed.hidden, [], 1, from_target=True)
        self.runtime.done(feed)
        return drafts

    def drafts_of(
        self, committed: Batch, hidden: Tensor, blocks: Batch, wanted: Sequence[Wanted]
    ) -> list[Draft | None]:
        """committed: all rows of the feed, and their hidden states; blocks: one for each of those wanted."""
        assert self.passes is not None
        requests, counts = [each.request for each in wanted], [each.places for each in wanted]
        chains = self.passes.draft(committed, hidden, blocks, requests, counts)
        return [chain_of(chain, self.name) for chain in chains]

    def num_rows(self, sequence: FedSequence) -> int:
        """Of its block: fewer at the end of the context."""
        return min(self.config.block_size, self.model.layers.max_len - len(sequence.request.tokens))

    def wanted(self, sequence: FedSequence, limit: int) -> Wanted:
        rows = self.num_rows(sequence) - self.config.first_proposing
        return Wanted(sequence, min(limit, self.most, rows, sequence.request.max_depth), limit)

    def rows(self, sequence: FedSequence) -> DraftRows:
        """The block: the last token, then mask tokens. Keys and values of the tokens before it lie one position behind
        their own (see `DraftLayers.reads_hidden`), and so do the block's rows: rotations are relative."""
        masks = (self.config.mask_token,) * (self.num_rows(sequence) - 1)
        return DraftRows(sequence, (sequence.request.tokens[-1], *masks))
