"""Feeds a draft model the committed tokens that it lacks, in as few passes as drafting and the prefix cache allow.

A request's tokens wait until it is drafted for, until they are many, or until it ends. Where the prefix cache gives
out a block that waits, its tokens are fed first, so that hits are the same with and without a draft model. Draft tokens
lie behind the committed ones, in blocks that belong to no request (`scratch`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.batch.builder import BatchBuilder
from specserve.batch.span import Span
from specserve.draft_models.draft_spans import draft_span
from specserve.draft_models.head_pass import PiecewisePass
from specserve.draft_models.sequences import FedSequence
from specserve.draft_models.waiting_hidden import WaitingHidden
from specserve.kv.slots import num_blocks_for
from specserve.models.tiled import forward_pass
from specserve.protocols import Feed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.batch.request import Request
    from specserve.draft_models.block_notes import BlockNotes
    from specserve.draft_models.waiting_hidden import Piece
    from specserve.models.draft_head import DraftHead
    from specserve.protocols import AttentionBackend, DraftLayers, DraftPass, DraftRows, KernelSet
    from specserve.types import ForwardOutput, SpanVerdict, Verdict


MAX_WAITING = 64
"""As soon as so many positions of a request wait, its complete blocks are fed."""


MAX_STEP_ROWS = 32
"""Accepted tokens of one step of a request for which the ring has room; more are kept in the step's tensor."""


class Reading(NamedTuple):
    """What a pass reads of one sequence."""

    sequence: FedSequence
    span: Span
    blocks: Sequence[int]
    """The request's own blocks, without scratch."""
    num_complete: int
    """So many of them are complete afterwards."""


class DraftMemory(NamedTuple):
    """Where the draft layers' keys, values and hidden states lie."""

    attention: AttentionBackend
    notes: BlockNotes
    block_size: int
    scratch: int
    """The first block that belongs to no request. Each request that drafts gets `scratch_blocks` of them in a step."""
    device: torch.device


class DraftModelRuntime:
    """`specserve.protocols.DraftRuntime`."""

    def __init__(
        self, layers: DraftLayers, hidden_layers: Sequence[int], kernels: KernelSet, memory: DraftMemory
    ) -> None:
        self.layers, self.kernels = layers, kernels
        self.attention, self.notes, self.block_size = memory.attention, memory.notes, memory.block_size
        self.first_scratch, self.num_scratch = memory.scratch, scratch_blocks(layers, memory.block_size)
        self.builder = BatchBuilder(memory.block_size, memory.device)
        self.waiting: WaitingHidden | None = None
        """None where no hidden states are read."""
        if self.notes.states is not None:
            self.waiting = WaitingHidden(hidden_layers, self.notes.states[:0], ring_length(memory.block_size))
        self.passes: DraftPass | None = None
        """Set by `draft_pass`; reads what waits for nobody's draft."""
        self.sequences: dict[str, FedSequence] = {}
        self.ended: dict[str, FedSequence] = {}
        """Those that ended in the current step, which may have completed a block."""
        self.ended_before: list[FedSequence] = []
        """Those that ended in the step before, and were fed if at all."""
        self.readings: dict[int, list[Reading]] = {}
        """Of feeds that are not done, by id of their batch."""

    def draft_pass(self, head: DraftHead) -> DraftPass:
        passes = forward_pass(head.decoder, self.kernels, self.attention)
        pieces = PiecewisePass(head, passes, self.attention)
        fuse = getattr(self.kernels, "fuse_draft", None)
        fused: DraftPass | None = None if fuse is None else fuse(head, pieces, self.attention)
        self.passes = pieces if fused is None else fused
        return self.passes

    def start(self, request: Request) -> None:
        self.sequences[request.id] = FedSequence.of(request)

    def stop(self, request: Request) -> None:
        sequence = self.sequences.pop(request.id, None)
        if sequence is None:
            return
        self.ended[request.id] = sequence
        if request.finish_reason == "abort":  # no step comes in which it ends
            self.complete([self.silent(sequence, len(sequence.blocks) if sequence.holds_blocks else 0)])

    # --- committed tokens ---------------------------------------------------------------------------

    def collect(self, batch: Batch, output: ForwardOutput, verdict: Verdict, limits: Sequence[int]) -> Feed | None:
        if self.waiting is not None:
            for ended in self.ended_before:
                self.waiting.forget(ended)
            self.waiting.begin(output.hidden)
        drafting: list[tuple[int, FedSequence]] = []
        others: list[FedSequence] = []
        for i, span in enumerate(batch.spans):
            request_id = span.request.id
            sequence = self.sequences.get(request_id) or self.ended.get(request_id)
            if sequence is None:
                continue
            if sequence.was_restarted(span.start):
                self.restart(sequence, span.start)
            self.advance(sequence, span, verdict.spans[i], batch.row_offsets[i])
            if not sequence.is_complete:
                continue
            if limits[i] > 0 and self.can_draft(sequence):
                drafting.append((i, sequence))
            elif self.num_ready(sequence) - sequence.num_fed >= MAX_WAITING or (
                request_id in self.ended and span.request.hashes
            ):
                others.append(sequence)
        readings = [self.drafting(sequence, place) for place, (_, sequence) in enumerate(drafting)]
        readings += [self.silent(sequence) for sequence in others]
        self.ended_before = [*self.ended.values()]
        self.ended.clear()
        return self.feed_of(readings, [i for i, _ in drafting])

    def advance(self, sequence: FedSequence, span: Span, decided: SpanVerdict, offset: int) -> None:
        """Note the hidden states of the span's rows that are committed now. `offset`: its first row in the step."""
        request = span.request
        sequence.num_computed = request.computed
        ready = self.num_ready(sequence)
        if not sequence.is_complete or ready <= span.start:
            return
        if self.waiting is not None:
            rows = committed_rows(span, decided, offset)
            self.waiting.note(sequence, span.start, rows[: ready - span.start])
        if ready // self.block_size > len(sequence.blocks):
            sequence.blocks += request.blocks[len(sequence.blocks) : ready // self.block_size]

    def restart(self, sequence: FedSequence, start: int) -> None:
        """The request begins at `start`, behind blocks that the prefix cache gave it."""
        num_blocks, request = start // self.block_size, sequence.request
        if not self.notes.has_first(request, num_blocks):
            self.complete_owners(request, num_blocks)
        if self.waiting is not None:
            self.waiting.forget(sequence)
        sequence.restart(max(start, 1) if self.layers.reads_hidden else start, request.blocks[:num_blocks])
        if start % self.block_size or not self.notes.has_first(request, num_blocks):
            sequence.give_up()  # a fault kept a step from this runtime, or kept the blocks from being complete
        elif num_blocks and self.waiting is not None:
            self.waiting.put(sequence, start - 1, self.notes.state(request.blocks[num_blocks - 1]))

    def complete_owners(self, request: Request, num_blocks: int) -> None:
        """Feed what waits for the request's first blocks, which the prefix cache gave out, so that they still hold
        their tokens."""
        for owner in sorted(self.sequences.values(), key=lambda sequence: sequence.num_sealed):
            shared = num_shared(owner, request, num_blocks)
            if not owner.is_complete or shared <= owner.num_sealed:
                continue
            if owner.holds_blocks:
                self.complete([self.silent(owner, shared)])
            elif self.can_follow(owner, request):
                owner.blocks[:shared] = request.blocks[:shared]
                self.complete([self.silent(owner, shared)])

    def can_follow(self, owner: FedSequence, request: Request) -> bool:
        """Whether what the owner, which gave its blocks back, was fed lies in the request's blocks too."""
        index = owner.num_sealed
        first = max(index * self.block_size, int(self.layers.reads_hidden))
        is_there = owner.num_fed <= first or owner.blocks[index] == request.blocks[index]
        return is_there and self.notes.has_first(request, index)

    @torch.inference_mode()
    def complete(self, readings: list[Reading]) -> None:
        """Read what waits for nobody's draft."""
        feed = self.feed_of([reading for reading in readings if reading.sequence.is_complete], [])
        if feed is not None:
            assert self.passes is not None
            self.passes.step(feed.batch, feed.hidden, [], 1, from_target=True)
            self.done(feed)

    def num_ready(self, sequence: FedSequence) -> int:
        """Positions below this were computed by the target, and are not beyond the draft layers."""
        return min(sequence.num_computed, self.layers.max_len)

    def can_draft(self, sequence: FedSequence) -> bool:
        """Whether all committed tokens can be fed, and one position more."""
        num_tokens = len(sequence.request.tokens)
        return sequence.num_computed == num_tokens - 1 and num_tokens < self.layers.max_len

    # --- passes -------------------------------------------------------------------------------------

    def drafting(self, sequence: FedSequence, place: int) -> Reading:
        """All that the request lacks, its last token included, whose slot may be in a scratch block."""
        begin, blocks = self.first_scratch + place * self.num_scratch, sequence.request.blocks
        sequence.view.blocks = [*blocks, *range(begin, begin + self.num_scratch)]
        span = Span(sequence.view, sequence.num_fed, sequence.num_computed + 1 - sequence.num_fed, 0, 1)
        return Reading(sequence, span, blocks, self.num_ready(sequence) // self.block_size)

    def silent(self, sequence: FedSequence, num_blocks: int | None = None) -> Reading:
        """What the request's complete blocks lack, or the first of them."""
        blocks = sequence.blocks[:num_blocks]
        sequence.view.blocks = blocks
        length = max(0, len(blocks) * self.block_size - sequence.num_fed)
        return Reading(sequence, Span(sequence.view, sequence.num_fed, length, 0, 0), blocks, len(blocks))

    def feed_of(self, readings: list[Reading], drafting: list[int]) -> Feed | None:
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
        batch = self.builder.build([reading.span for reading in fed])
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

    # --- draft tokens -------------------------------------------------------------------------------

    def draft_batch(self, rows: Sequence[DraftRows]) -> Batch:
        return self.builder.build([draft_span(each) for each in rows])


def committed_rows(span: Span, decided: SpanVerdict, offset: int) -> Sequence[int]:
    """Rows of the step that are committed now: its committed tokens and the accepted draft tokens."""
    end = offset + span.known
    if not decided.path:
        return range(offset, end)
    return [*range(offset, end), *(end + node for node in decided.path)]


def ring_length(block_size: int) -> int:
    """Room for what waits in steady decoding: a block at least, and what completes it."""
    return max(MAX_WAITING, block_size) + max(block_size, MAX_STEP_ROWS)


def num_shared(owner: FedSequence, request: Request, num_blocks: int) -> int:
    """The leading blocks of the request up to the last one that the owner computed."""
    pairs = zip(owner.blocks, owner.request.hashes, request.blocks[:num_blocks], request.hashes, strict=False)
    return max((i + 1 for i, (mine, h, block, other) in enumerate(pairs) if mine == block and h == other), default=0)


def scratch_blocks(layers: DraftLayers, block_size: int) -> int:
    """How many blocks hold a request's draft rows."""
    return num_blocks_for(layers.max_draft_rows, block_size)
