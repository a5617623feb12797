"""Passes over committed tokens that the draft layers lack: whose, which, with which hidden states.

A draft needs all of them, in blocks of its own behind the request's where these end. Elsewhere complete blocks are
enough. Owns what is noted of a block when it is complete; not when a pass is due.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve.inference import inference
from specserve_draft_models.draft_spans import span_of, with_masks
from specserve_draft_models.passes import Feed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.builder import BatchBuilder
    from specserve.batch.span import Span
    from specserve.protocols import DraftLayers, DraftResources
    from specserve_draft_models.draft_blocks import DraftBlocks
    from specserve_draft_models.passes import Masks
    from specserve_draft_models.pending_hidden import PendingHidden, Piece
    from specserve_draft_models.sequences import FedSequence


class Reading(NamedTuple):
    """What a pass reads of one sequence."""

    sequence: FedSequence
    span: Span
    blocks: Sequence[int]
    """The request's own blocks, without scratch."""
    num_complete: int
    """How many of them are complete afterwards."""


class Feeds:
    """`draft_blocks`: what is known of the blocks; `pending`: None where no hidden states are read; `masks`: None where
    the draft model has none."""

    def __init__(
        self,
        layers: DraftLayers,
        resources: DraftResources,
        draft_blocks: DraftBlocks,
        pending: PendingHidden | None,
        builder: BatchBuilder,
        masks: Masks | None = None,
    ) -> None:
        self.masks = masks
        self.layers, self.draft_blocks, self.pending, self.builder = layers, draft_blocks, pending, builder
        self.block_size = resources.block_size
        self.first_scratch, self.num_scratch = resources.first_scratch, resources.scratch_blocks
        self.readings: dict[int, list[Reading]] = {}
        """What feeds that are not done read, by id of their batch."""

    def num_ready(self, sequence: FedSequence) -> int:
        """Positions below this were computed by the target, and are not beyond the draft layers."""
        return min(sequence.num_computed, self.layers.max_len)

    def drafting(self, sequence: FedSequence, place: int, num_masks: int) -> Reading:
        """All that the request lacks, its last token included, whose slot may be in a scratch block; and masks behind
        it."""
        begin, blocks = self.first_scratch + place * self.num_scratch, sequence.request.blocks
        sequence.table = [*blocks, *range(begin, begin + self.num_scratch)]
        span = span_of(sequence, sequence.num_fed, sequence.num_computed + 1 - sequence.num_fed, 1)
        if self.masks is not None:
            span = with_masks(span, self.masks.token, num_masks)
        return Reading(sequence, span, blocks, self.num_ready(sequence) // self.block_size)

    def idle(self, sequence: FedSequence, num_blocks: int | None = None) -> Reading:
        """What the request's complete blocks lack, or the first of them."""
        blocks = sequence.blocks[:num_blocks]
        sequence.table = blocks
        length = max(0, len(blocks) * self.block_size - sequence.num_fed)
        return Reading(sequence, span_of(sequence, sequence.num_fed, length, 0), blocks, len(blocks))

    def make(self, readings: list[Reading], drafting: list[int]) -> Feed | None:
        """None where there is nothing to compute; blocks that are complete already are noted then."""
        readings = [each for each in readings if each.span.length or each.num_complete > each.sequence.num_finalized]
        if not readings:
            return None
        for reading in readings:
            sequence = reading.sequence
            sequence.latest_feed = self.draft_blocks.reopen(reading.blocks[sequence.num_finalized :])
        hidden = None if self.pending is None else self.hidden_of(readings, self.pending)
        fed = [reading for reading in readings if reading.span.length]
        for reading in readings:
            if not reading.span.length:
                self.settle(reading)
        if not fed:
            return None
        batch = self.builder.build([each.span for each in fed], [each.sequence.request.tokens for each in fed])
        self.readings = {id(batch): fed}
        return Feed(batch, hidden, [reading.sequence for reading in fed], drafting)

    def hidden_of(self, readings: Sequence[Reading], pending: PendingHidden) -> Tensor | None:
        """[rows of the spans, W], None where there are no rows; saves the hidden states that blocks keep."""
        fed: list[Piece] = []
        kept: list[Piece] = []
        keeping: list[int] = []
        for sequence, span, blocks, num_complete in readings:
            begin = sequence.num_fed - 1
            fed += pending.pieces(sequence, begin, begin + span.known)
            if span.drafted:
                assert self.masks is not None
                fed.append(self.masks.hidden.expand(span.drafted, -1))
            for index in range(sequence.num_finalized, num_complete):
                end = (index + 1) * self.block_size
                kept += pending.pieces(sequence, end - 1, end)
                keeping.append(blocks[index])
        if keeping:
            self.draft_blocks.save_states(keeping, pending.gather(kept))
        return pending.gather(fed) if fed else None

    @inference
    def done(self, feed: Feed) -> None:
        for reading in self.readings.pop(id(feed.batch)):
            self.settle(reading)

    def settle(self, reading: Reading) -> None:
        """The pass was computed. What lies in a scratch block is fed again."""
        sequence, span, blocks, num_complete = reading
        if span.length:
            sequence.num_fed = min(span.start + span.known, len(blocks) * self.block_size)
        if sequence.long and not sequence.is_copy and self.pending is not None:
            self.pending.shorten(sequence, self.num_ready(sequence))
        for index in range(sequence.num_finalized, num_complete):
            self.draft_blocks.finalize(sequence.request, blocks, index)
        sequence.num_finalized = max(sequence.num_finalized, num_complete)
