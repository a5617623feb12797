"""Drafts with a block head: one pass for all requests of a step, whatever the length of their drafts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import DrafterNeeds
from specserve.api.models import inference
from specserve.api.sampling import chain_of
from specserve_draft_models import DraftModelRuntime, DraftRows
from specserve_eagle.block.block_pass import PiecewiseBlockPass
from specserve_eagle.block.counted_pass import CountedBlockPass
from specserve_eagle.draft_model_drafter import DraftModelDrafter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.api import BlockPass, Draft, DraftResources, DraftToken, ForwardOutput, Verdict
    from specserve.api.batch import ScheduledBatch
    from specserve_draft_models import FedSequence, Feed
    from specserve_eagle.block.load import BlockModel


class BlockDrafter(DraftModelDrafter):
    """`most`: draft tokens of a request at most."""

    def __init__(self, model: BlockModel, most: int) -> None:
        self.model, self.config, self.most = model, model.config, min(most, model.config.num_proposed)
        self.needs = DrafterNeeds(hidden_layers=self.config.hidden_layers, layers=model.layers)
        self.passes: BlockPass | None = None
        """Set by `connect`."""

    def connect(self, resources: DraftResources) -> None:
        self.runtime = DraftModelRuntime(self.model.layers, resources)
        pieces = PiecewiseBlockPass(self.model.head, resources.attention)
        fused = resources.kernels.fuse_blocks(self.model.head, pieces, resources.attention)
        passes = pieces if fused is None else fused
        self.passes = passes if resources.graphs is None else CountedBlockPass(passes, resources.graphs)
        self.runtime.passes = self.passes

    def propose(
        self, batch: ScheduledBatch, output: ForwardOutput, verdict: Verdict, limits: Sequence[int]
    ) -> list[Draft | None]:
        assert self.runtime is not None
        self.observe(batch, verdict)
        feed = self.runtime.collect(batch, output, verdict, limits)
        drafts: list[Draft | None] = [None] * len(limits)
        if feed is not None:
            for i, chain in zip(feed.drafting, self.chains(feed, limits), strict=True):
                drafts[i] = chain_of(chain, self.name)
        return drafts

    @inference
    def chains(self, feed: Feed, limits: Sequence[int]) -> list[list[DraftToken]]:
        """Of the requests that the feed drafts for."""
        assert self.runtime is not None
        assert self.passes is not None
        chains: list[list[DraftToken]] = [[] for _ in feed.drafting]
        sequences = list(feed.sequences[: len(feed.drafting)])
        counts = [self.num_wanted(sequence, limits[i]) for i, sequence in zip(feed.drafting, sequences, strict=True)]
        drafting = [i for i, count in enumerate(counts) if count > 0]
        if drafting:
            assert feed.hidden is not None, "a block head reads hidden states"
            blocks = self.runtime.draft_batch(
                [self.rows(sequences[i]) for i in drafting], sees_ahead=not self.config.is_causal
            )
            requests = [sequences[i].request for i in drafting]
            made = self.passes.draft(feed.batch, feed.hidden, blocks, requests, [counts[i] for i in drafting])
            for i, chain in zip(drafting, made, strict=True):
                chains[i] = chain
        else:
            self.passes.step(feed.batch, feed.hidden, [], 1, from_target=True)
        self.runtime.done(feed)
        return chains

    def num_rows(self, sequence: FedSequence) -> int:
        """Of its block: fewer at the end of the context."""
        return min(self.config.block_size, self.model.layers.max_len - len(sequence.request.tokens))

    def num_wanted(self, sequence: FedSequence, limit: int) -> int:
        return min(limit, self.most, self.num_rows(sequence) - self.config.first_proposing)

    def rows(self, sequence: FedSequence) -> DraftRows:
        """The block: the last token, then mask tokens. Keys and values of the tokens before it lie one position behind
        their own (see `DraftLayers.reads_hidden`), and so do the block's rows: rotations are relative."""
        masks = (self.config.mask_token,) * (self.num_rows(sequence) - 1)
        return DraftRows(sequence, (sequence.request.tokens[-1], *masks))
