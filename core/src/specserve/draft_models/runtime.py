"""Feeds a draft model the committed tokens that it lacks, in as few passes as drafting and the prefix cache allow.

A request's tokens wait until it is drafted for, or until one of its blocks is complete: a block is published with all
that the draft layers have to have of it, so that hits of the prefix cache are the same with and without a draft model.
Draft tokens lie behind the committed ones, in blocks that belong to no request (`scratch`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.batch.builder import BatchBuilder
from specserve.batch.span import Span
from specserve.draft_models.draft_spans import draft_span
from specserve.draft_models.head_pass import PiecewisePass
from specserve.draft_models.hidden_rows import HiddenRows, JoinedHidden, StepHidden, gather, num_rows, split_off
from specserve.draft_models.sequences import FedSequence
from specserve.kv.slots import num_blocks_for
from specserve.models.tiled import forward_pass
from specserve.protocols import Feed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.batch.request import Request
    from specserve.draft_models.block_notes import BlockNotes
    from specserve.models.draft_head import DraftHead
    from specserve.protocols import AttentionBackend, DraftLayers, DraftPass, DraftRows, KernelSet
    from specserve.types import ForwardOutput, SpanVerdict, Verdict


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
        self.layers, self.hidden_layers, self.kernels = layers, hidden_layers, kernels
        self.attention, self.notes, self.block_size = memory.attention, memory.notes, memory.block_size
        self.first_scratch, self.num_scratch = memory.scratch, scratch_blocks(layers, memory.block_size)
        self.builder = BatchBuilder(memory.block_size, memory.device)
        self.sequences: dict[str, FedSequence] = {}
        self.ended: dict[str, FedSequence] = {}
        """Those that ended in the current step, which may have completed a block."""

    def draft_pass(self, head: DraftHead) -> DraftPass:
        passes = forward_pass(head.decoder, self.kernels, self.attention)
        pieces = PiecewisePass(head, passes, self.attention)
        fuse = getattr(self.kernels, "fuse_draft", None)
        fused: DraftPass | None = None if fuse is None else fuse(head, pieces, self.attention)
        return pieces if fused is None else fused

    def start(self, request: Request) -> None:
        self.sequences[request.id] = FedSequence.of(request)

    def stop(self, request: Request) -> None:
        sequence = self.sequences.pop(request.id, None)
        if sequence is not None:
            self.ended[request.id] = sequence

    # --- committed tokens ---------------------------------------------------------------------------

    def collect(self, batch: Batch, output: ForwardOutput, verdict: Verdict, limits: Sequence[int]) -> Feed | None:
        hidden = StepHidden(output.hidden, self.hidden_layers) if self.layers.reads_hidden else None
        drafting: list[tuple[int, FedSequence]] = []
        others: list[FedSequence] = []
        for i, (span, offset) in enumerate(zip(batch.spans, batch.row_offsets, strict=True)):
            sequence = self.sequences.get(span.request.id) or self.ended.get(span.request.id)
            if sequence is None:
                continue
            self.advance(sequence, span, verdict.spans[i], HiddenRows(hidden, range(offset, offset + span.length)))
            if not sequence.is_complete:
                continue
            if limits[i] > 0 and self.can_draft(sequence):
                drafting.append((i, sequence))
            elif self.num_ready(sequence) // self.block_size > sequence.num_sealed:
                others.append(sequence)
        self.ended.clear()
        return self.feed_of(drafting, others) if drafting or others else None

    def advance(self, sequence: FedSequence, span: Span, decided: SpanVerdict, computed: HiddenRows) -> None:
        """Note the hidden states of the span's rows that are committed now. `computed`: of all its rows."""
        request, (source, rows) = span.request, computed
        if sequence.was_restarted(span.start):
            self.restart(sequence, span.start)
        sequence.num_computed = request.computed
        count = self.num_ready(sequence) - span.start
        if source is not None and sequence.is_complete and count > 0:
            committed = [*rows[: span.known], *(rows[span.known + node] for node in decided.path)]
            sequence.waiting.append(HiddenRows(source, committed[:count]))

    def restart(self, sequence: FedSequence, start: int) -> None:
        """The request begins at `start`, behind blocks that the prefix cache gave it."""
        num_blocks, request = start // self.block_size, sequence.request
        sequence.restart(max(start, 1) if self.layers.reads_hidden else start, num_blocks)
        if start % self.block_size or not self.notes.has_first(request, num_blocks):
            sequence.give_up()  # a fault kept a step from this runtime, or kept the blocks from being complete
        elif num_blocks and self.layers.reads_hidden:
            state = self.notes.state(request.blocks[num_blocks - 1])
            sequence.waiting.append(HiddenRows(JoinedHidden(state), [0]))

    def num_ready(self, sequence: FedSequence) -> int:
        """Positions below this were computed by the target, and are not beyond the draft layers."""
        return min(sequence.num_computed, self.layers.max_len)

    def can_draft(self, sequence: FedSequence) -> bool:
        """Whether all committed tokens can be fed, and one position more."""
        num_tokens = len(sequence.request.tokens)
        return sequence.num_computed == num_tokens - 1 and num_tokens < self.layers.max_len

    def feed_of(self, drafting: list[tuple[int, FedSequence]], others: list[FedSequence]) -> Feed | None:
        sequences = [*(sequence for _, sequence in drafting), *others]
        spans = [
            *(self.drafting_span(sequence, place) for place, (_, sequence) in enumerate(drafting)),
            *(self.silent_span(sequence) for sequence in others),
        ]
        for sequence in sequences:
            self.notes.reopen(sequence.request.blocks[sequence.num_sealed :])
        hidden = self.hidden_of(sequences, spans) if self.layers.reads_hidden else None
        fed = [(sequence, span) for sequence, span in zip(sequences, spans, strict=True) if span.length]
        for sequence, span in zip(sequences, spans, strict=True):
            if not span.length:  # its block is complete already
                self.settle(sequence, sequence.num_fed)
        if not fed:
            return None
        batch = self.builder.build([span for _, span in fed])
        return Feed(batch, hidden, [sequence for sequence, _ in fed], [i for i, _ in drafting])

    def drafting_span(self, sequence: FedSequence, place: int) -> Span:
        """All that the request lacks, its last token included, whose slot may be in a scratch block."""
        begin = self.first_scratch + place * self.num_scratch
        sequence.view.blocks = [*sequence.request.blocks, *range(begin, begin + self.num_scratch)]
        return Span(sequence.view, sequence.num_fed, sequence.num_computed + 1 - sequence.num_fed, 0, 1)

    def silent_span(self, sequence: FedSequence) -> Span:
        """What the request lacks as far as it has slots."""
        sequence.view.blocks = blocks = sequence.request.blocks
        end = min(sequence.num_computed + 1, self.layers.max_len, len(blocks) * self.block_size)
        return Span(sequence.view, sequence.num_fed, max(0, end - sequence.num_fed), 0, 0)

    def hidden_of(self, sequences: Sequence[FedSequence], spans: Sequence[Span]) -> Tensor:
        """[rows of the spans, W]; saves the hidden states that blocks keep."""
        waiting = gather([entry for sequence in sequences for entry in sequence.waiting])
        fed, begin, size = [], 0, self.block_size
        for sequence, span in zip(sequences, spans, strict=True):
            fed.append(waiting[begin : begin + span.length])
            before = begin - (sequence.num_fed - 1)  # the row of position 0, were it waiting
            for index in range(sequence.num_sealed, self.num_ready(sequence) // size):
                block = sequence.request.blocks[index]
                self.notes.save_state(block, waiting[before + (index + 1) * size - 1])
            begin += num_rows(sequence.waiting)
        return waiting if sum(map(len, fed)) == len(waiting) else torch.cat(fed)

    def done(self, feed: Feed) -> None:
        for sequence, span in zip(feed.sequences, feed.batch.spans, strict=True):
            assert isinstance(sequence, FedSequence)
            self.settle(sequence, span.start + span.length)

    def settle(self, sequence: FedSequence, end: int) -> None:
        """Positions below `end` are fed. What lies in a scratch block is fed again."""
        size, request, num_ready = self.block_size, sequence.request, self.num_ready(sequence)
        sequence.num_fed = min(end, len(request.blocks) * size)
        sequence.waiting = split_off(sequence.waiting, num_ready + 1 - sequence.num_fed)
        for index in range(sequence.num_sealed, min(num_ready, sequence.num_fed) // size):
            self.notes.seal(request, index)
            sequence.num_sealed = index + 1

    # --- draft tokens -------------------------------------------------------------------------------

    def draft_batch(self, rows: Sequence[DraftRows]) -> Batch:
        return self.builder.build([draft_span(each) for each in rows])


def scratch_blocks(layers: DraftLayers, block_size: int) -> int:
    """How many blocks hold a request's draft rows."""
    return num_blocks_for(layers.max_draft_rows, block_size)
