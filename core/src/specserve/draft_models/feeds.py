"""Passes over committed tokens that the draft layers lack: whose, which, with which hidden states.

A draft needs all of them, in blocks of its own behind the request's where these end. Elsewhere complete blocks are
enough. Owns what is noted of a block when it is complete; not when a pass is due.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve.draft_models.draft_spans import span_of
from specserve.inference import inference
from specserve.kv.slots import num_blocks_for
from specserve.protocols import Feed

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch import Tensor

    from specserve.batch.builder import BatchBuilder
    from specserve.batch.span import Span
    from specserve.draft_models.block_notes import BlockNotes
    from specserve.draft_models.sequences import FedSequence
    from specserve.draft_models.waiting_hidden import Piece, WaitingHidden
    from specserve.protocols import AttentionBackend, DraftLayers, GraphMode


class DraftMemory(NamedTuple):
    """Where the draft layers' keys, values and hidden states lie."""

    attention: AttentionBackend
    notes: BlockNotes
    block_size: int
    scratch: int
    """The first block that belongs to no request. Each request that drafts gets `scratch_blocks` of them in a step."""
    device: torch.device
    graphs: tuple[GraphMode, ...] = ("piecewise", "full")
    """That the attention states to serve."""


class Reading(NamedTuple):
    """What a pass reads of one sequence."""

    sequence: FedSequence
    span: Span
    blocks: Sequence[int]
    """The request's own blocks, without scratch."""
    num_complete: int
    """So many of them are complete afterwards."""


class Feeds:
    """`waiting`: None where no hidden states are read."""

    def __init__(
        self, layers: DraftLayers, memory: DraftMemory, waiting: WaitingHidden | None, builder: BatchBuilder
    ) -> None:
        self.layers, self.notes, self.block_size = layers, memory.notes, memory.block_size
        self.waiting, self.builder = waiting, builder
        self.first_scratch, self.num_scratch = memory.scratch, scratch_blocks(layers, memory.block_size)
        self.readings: dict[int, list[Reading]] = {}
        """Of feeds that are not done, by id of their batch."""

    def num_ready(self, sequence: FedSequence) -> int:
        """Positions below this were computed by the target, and are not beyond the draft layers."""
        return min(sequence.num_computed, self.layers.max_len)

    def drafting(self, sequence: FedSequence, place: int) -> Reading:
        """All that the request lacks, its last token included, whose slot may be in a scratch block."""
        begin, blocks = self.first_scratch + place * self.num_scratch, sequence.request.blocks
        sequence.table = [*blocks, *range(begin, begin + self.num_scratch)]
        span = span_of(sequence, sequence.num_fed, sequence.num_computed + 1 - sequence.num_fed, 1)
        return Reading(sequence, span, blocks, self.num_ready(sequence) // self.block_size)

    def silent(self, sequence: FedSequence, num_blocks: int | None = None) -> Reading:
        """What the request's complete blocks lack, or the first of them."""
        blocks = sequence.blocks[:num_blocks]
        sequence.table = blocks
        length = max(0, len(blocks) * self.block_size - sequence.num_fed)
        return Reading(sequence, span_of(sequence, sequence.num_fed, length, 0), blocks, len(blocks))

    def make(self, readings: list[Reading], drafting: list[int]) -> Feed | None:
        """None where there is nothing to compute; blocks that are complete already are noted then."""
        readings = [each for each in readings if each.span.length or each.num_complete > each.sequence.num_sealed]
        if not readings:
            return None
        for reading in readings:
            self.notes.reopen(reading.blocks[reading.sequence.num_sealed :])
        hidden = None if self.waiting is None else self.hidden_of(readings, self.waiting)
        fed = [reading for reading in readings if reading.span.length]
        for reading in readings:
            if not reading.span.length:
                self.settle(reading)
        if not fed:
            return None
        batch = self.builder.build([each.span for each in fed], [each.sequence.request.tokens for each in fed])
        self.readings = {id(batch): fed}
        return Feed(batch, hidden, [reading.sequence for reading in fed], drafting)

    def hidden_of(self, readings: Sequence[Reading], waiting: WaitingHidden) -> Tensor | None:
        """[rows of the spans, W], None where there are no rows; saves the hidden states that blocks keep."""
        fed: list[Piece] = []
        kept: list[Piece] = []
        keeping: list[int] = []
        for sequence, span, blocks, num_complete in readings:
            begin = sequence.num_fed - 1
            fed += waiting.pieces(sequence, begin, begin + span.length)
            for index in range(sequence.num_sealed, num_complete):
                end = (index + 1) * self.block_size
                kept += waiting.pieces(sequence, end - 1, end)
                keeping.append(blocks[index])
        if keeping:
            self.notes.save_states(keeping, waiting.gather(kept))
        return waiting.gather(fed) if fed else None

    @inference
    def done(self, feed: Feed) -> None:
        for reading in self.readings.pop(id(feed.batch)):
            self.settle(reading)

    def settle(self, reading: Reading) -> None:
        """The pass was computed. What lies in a scratch block is fed again."""
        sequence, span, blocks, num_complete = reading
        if span.length:
            sequence.num_fed = min(span.start + span.length, len(blocks) * self.block_size)
        if sequence.long and self.waiting is not None:
            self.waiting.shorten(sequence, self.num_ready(sequence))
        for index in range(sequence.num_sealed, num_complete):
            self.notes.seal(sequence.request, blocks, index)
        sequence.num_sealed = max(sequence.num_sealed, num_complete)


def scratch_blocks(layers: DraftLayers, block_size: int) -> int:
    """How many blocks hold a request's draft rows."""
    return num_blocks_for(layers.max_draft_rows, block_size)
