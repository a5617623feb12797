"""Feeds a draft model the committed tokens that it lacks, in as few passes as drafting and the prefix cache allow.

A request's tokens wait until it is drafted for, until they are many, or until it ends. Where the prefix cache gives
out a block that waits, its tokens are fed first, so that hits are the same with and without a draft model. Draft tokens
lie behind the committed ones, in blocks that belong to no request (`scratch`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.batch.builder import BatchBuilder
from specserve.inference import inference
from specserve.models.tiled import forward_pass
from specserve_draft_models.block_owners import BlockOwners
from specserve_draft_models.counted_pass import CountedDraftPass
from specserve_draft_models.draft_blocks import DraftBlocks
from specserve_draft_models.draft_spans import draft_span
from specserve_draft_models.feeds import Feeds
from specserve_draft_models.head_pass import PiecewisePass
from specserve_draft_models.idle_steps import IdleSteps, RunLimits, begin_run, committed_rows, max_run_rows
from specserve_draft_models.pending_hidden import PendingHidden
from specserve_draft_models.recorded_pass import RecordedDraftPass
from specserve_draft_models.sequences import FedSequence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from specserve.batch.batch import Batch, ScheduledBatch
    from specserve.batch.request import Request
    from specserve.models.draft_head import DraftHead
    from specserve.protocols import DraftLayers, DraftPass, DraftResources
    from specserve.types import ForwardOutput, Verdict
    from specserve_draft_models.feeds import Reading
    from specserve_draft_models.passes import DraftRows, Feed, Masks

MIN_PENDING, MAX_PENDING = 64, 512
"""As soon as `max_pending` positions of a request wait, its complete blocks are fed. It is within these."""
RING_BYTES = 2**19
"""If hidden states are small, more positions wait, up to this many bytes of a request: larger feeds cost less each."""
MAX_STEP_ROWS = 32
"""Accepted tokens of one step of a request for which the ring has room; more are kept in the step's tensor."""


class DraftModelRuntime:
    """The layers of one draft model, and what the engine gave for them.

    Call `start` and `stop` for every request and `collect` in every step. After the pass of a `Feed`, call `done`;
    where the pass raises, the same rows are in a later one.
    """

    def __init__(self, layers: DraftLayers, resources: DraftResources, masks: Masks | None = None) -> None:
        self.layers, self.resources, self.block_size = layers, resources, resources.block_size
        self.draft_blocks, self.builder = DraftBlocks(resources.states), BatchBuilder(self.block_size, resources.device)
        states = resources.states
        row_bytes = 0 if states is None else states[0].nbytes
        length = ring_length(row_bytes, self.block_size)
        self.max_pending = length - step_room(self.block_size)
        self.run_limits = RunLimits(layers.max_len, self.max_pending - 1, max_run_rows(row_bytes))
        self.pending: PendingHidden | None = None
        """None where no hidden states are read."""
        if states is not None:
            self.pending = PendingHidden(resources.hidden_layers, states[:0], length)
        self.feeds = Feeds(layers, resources, self.draft_blocks, self.pending, self.builder, masks)
        self.owners = BlockOwners(layers, resources, self.feeds, self.complete)
        self.passes: DraftPass | None = None
        """Set by `draft_pass`; reads what waits for nobody's draft."""
        self.sequences: dict[str, FedSequence] = {}
        self.ended: dict[int, FedSequence] = {}
        """Those that ended in the current step, which may have completed a block, or in none since the latest feed; by
        id() of the request, since others may have its name by now."""
        self.ended_before: list[FedSequence] = []
        """Those that ended in the step before, and were fed if at all."""
        self.run: IdleSteps | None = None
        """The latest steps, as far as `advance` does not know them."""

    def draft_pass(self, head: DraftHead) -> DraftPass:
        """One call of the kernel set where that can fuse it."""
        kernels, attention, graphs = self.resources.kernels, self.resources.attention, self.resources.graphs
        head.decoder.token_states = self.resources.token_states
        pieces = PiecewisePass(head, forward_pass(head.decoder, kernels, attention), attention)
        fused = kernels.fuse_draft(head, pieces, attention)
        if graphs is None:
            self.passes = pieces if fused is None else fused
        elif fused is None:
            self.passes = RecordedDraftPass(pieces, graphs.record(head.decoder, pieces.layers))
        else:
            self.passes = CountedDraftPass(fused, kernels.name, graphs)
        return self.passes

    def start(self, request: Request) -> None:
        """Call it from the drafter's `start`."""
        self.sequences[request.id] = FedSequence.of(request)

    def stop(self, request: Request) -> None:
        """Call it from the drafter's `stop`."""
        self.end_run()
        sequence = self.sequences.pop(request.id, None)
        if sequence is None:
            return
        self.ended[id(request)] = sequence
        if request.finish_reason == "abort" and request.hashes:  # no step comes in which it ends
            if sequence.holds_blocks:
                self.complete([self.feeds.idle(sequence)])
            else:
                self.owners.complete_left(sequence)

    # --- committed tokens ---------------------------------------------------------------------------

    def collect(
        self,
        batch: ScheduledBatch,
        output: ForwardOutput,
        verdict: Verdict,
        limits: Sequence[int],
        num_masks: Sequence[int] = (),
    ) -> Feed | None:
        """The committed tokens to compute in this step: all that the requests with a limit above 0 lack, and what
        completes a block of others. None: nothing. num_masks: of each span, the masks behind the last token of a
        request that is drafted for."""
        if not any(limits) and self.goes_on(batch, output, verdict):
            return None
        self.end_run()
        if not any(limits) and not self.ended:
            self.begin_run(batch)
            if self.goes_on(batch, output, verdict):
                return None
        return self.feed(batch, output, verdict, limits, num_masks or [0] * len(limits))

    def goes_on(self, batch: ScheduledBatch, output: ForwardOutput, verdict: Verdict) -> bool:
        """Whether nothing is due after this step, after which nobody is drafted for: it is noted, and needs no
        `collect`. Not so after the latest `collect` that was asked for drafts."""
        if self.run is None or self.ended or not self.run.goes_on(batch):
            return False
        self.run.add(batch, verdict, output.hidden)
        return True

    def idle_steps(self) -> int:
        """How many plain steps of the same requests may run before `add_idle` must be called; 0: `goes_on` must be
        called after each."""
        return 0 if self.run is None else self.run.idle_steps()

    def add_idle(self, batch: ScheduledBatch, count: int, hidden: Sequence[Mapping[int, Tensor]]) -> None:
        """As many of them ran. batch: the last one's; hidden: of all their rows in order."""
        assert self.run is not None, "only a run can be added to"
        self.run.add_plain(count, batch.num_rows, hidden)

    @inference
    def begin_run(self, batch: ScheduledBatch) -> None:
        self.run = begin_run(batch, self.sequences, self.run_limits)
        if self.run is not None and self.pending is not None:
            self.pending.begin(())  # a long run does not keep the hidden states of the step before it

    @inference
    def end_run(self) -> None:
        """Note the steps of the run."""
        run, self.run = self.run, None
        if run is None:
            return
        if self.pending is not None:
            self.pending.begin(run.hidden)
        for each in run.committed():
            self.advance(*each)

    @inference
    def feed(
        self,
        batch: ScheduledBatch,
        output: ForwardOutput,
        verdict: Verdict,
        limits: Sequence[int],
        num_masks: Sequence[int],
    ) -> Feed | None:
        if self.ended:
            self.complete_left(batch)
        if self.pending is not None:
            for ended in self.ended_before:
                self.pending.forget(ended)
            self.pending.add(output.hidden)
        drafting: list[tuple[int, FedSequence]] = []
        others: list[FedSequence] = []
        due = False
        for i, span in enumerate(batch.spans):
            request = span.request
            sequence = self.sequences.get(request.id) or self.ended.get(id(request))
            if sequence is None:
                continue
            if sequence.was_restarted(span.start):
                self.restart(sequence, span.start)
            rows = committed_rows(span, verdict.spans[i], batch.row_offsets[i])
            self.advance(sequence, span.start, rows, request.computed, request.blocks)
            if not sequence.is_complete:
                continue
            num_pending = self.feeds.num_ready(sequence) - sequence.num_fed
            if limits[i] > 0 and self.can_draft(sequence):
                drafting.append((i, sequence))
            elif id(request) in self.ended:
                if request.hashes:  # else nobody finds its blocks
                    others.append(sequence)
                    due = True
            elif num_pending >= self.max_pending // 2:
                others.append(sequence)
                due = due or num_pending >= self.max_pending
        if not drafting and not due:
            others = []
        readings = [self.feeds.drafting(sequence, place, num_masks[i]) for place, (i, sequence) in enumerate(drafting)]
        readings += [self.feeds.idle(sequence) for sequence in others]
        self.ended_before = [*self.ended.values()]
        self.ended.clear()
        return self.feeds.make(readings, [i for i, _ in drafting])

    def complete_left(self, batch: ScheduledBatch) -> None:
        """Feed what waits of requests that ended and are not in this step. One that raises alone ends so."""
        requests = {id(span.request) for span in batch.spans}
        left = [self.ended.pop(key) for key in [*self.ended] if key not in requests]
        self.ended_before += left  # first: they are forgotten, though a pass may raise
        for sequence in left:
            self.owners.complete_left(sequence)

    def advance(
        self, sequence: FedSequence, start: int, rows: Sequence[int], num_computed: int, blocks: Sequence[int]
    ) -> None:
        """The positions from `start` on are committed now, and all below `num_computed` have keys and values in these
        blocks. `rows`: where their hidden states are."""
        sequence.num_computed = num_computed
        ready = self.feeds.num_ready(sequence)
        if not sequence.is_complete or ready <= start:
            return
        if self.pending is not None:
            self.pending.note(sequence, start, rows[: ready - start])
        if ready // self.block_size > len(sequence.blocks):
            sequence.blocks += blocks[len(sequence.blocks) : ready // self.block_size]

    def restart(self, sequence: FedSequence, start: int) -> None:
        """The request begins at `start`, behind blocks that the prefix cache gave it."""
        num_blocks, request = start // self.block_size, sequence.request
        if not self.draft_blocks.has(request.blocks[:num_blocks], request.hashes):
            self.owners.complete_given(request, num_blocks, [*self.sequences.values(), *self.ended.values()])
        if self.pending is not None:
            self.pending.forget(sequence)
        sequence.restart(max(start, 1) if self.layers.reads_hidden else start, request.blocks[:num_blocks])
        if start % self.block_size or not self.draft_blocks.has(request.blocks[:num_blocks], request.hashes):
            sequence.give_up()  # a fault kept a step from this runtime, or kept the blocks from being complete
        elif num_blocks and self.pending is not None:
            self.pending.put(sequence, start - 1, self.draft_blocks.state(request.blocks[num_blocks - 1]))

    @inference
    def complete(self, readings: list[Reading]) -> None:
        """Read what waits for nobody's draft."""
        feed = self.feeds.make([reading for reading in readings if reading.sequence.is_complete], [])
        if feed is not None:
            assert self.passes is not None
            self.passes.step(feed.batch, feed.hidden, [], 1, from_target=True)
            self.done(feed)

    def can_draft(self, sequence: FedSequence) -> bool:
        """Whether all committed tokens can be fed, and one position more."""
        num_tokens = len(sequence.request.tokens)
        return sequence.num_computed == num_tokens - 1 and num_tokens < self.layers.max_len

    def done(self, feed: Feed) -> None:
        """The pass over the feed has run: its positions have keys and values in the draft layers."""
        self.feeds.done(feed)

    # --- draft tokens -------------------------------------------------------------------------------

    def draft_batch(self, rows: Sequence[DraftRows], *, sees_ahead: bool = False) -> Batch:
        """A batch of draft tokens, all scored; their keys and values are lost with the next `collect`. `sees_ahead`:
        all tokens of a request see each other, which are chains then."""
        spans = [draft_span(each) for each in rows]
        if sees_ahead:
            spans = [msgspec.structs.replace(span, sees_ahead=True) for span in spans]
        return self.builder.build(spans, [each.sequence.request.tokens for each in rows])


def ring_length(row_bytes: int, block_size: int) -> int:
    """Room for what waits of a request in steady decoding: a block at least, and what completes it. `row_bytes`: of a
    hidden state, 0 where none are read."""
    room = step_room(block_size)
    return max(MIN_PENDING, block_size, RING_BYTES // max(row_bytes, RING_BYTES // MAX_PENDING) - room) + room


def step_room(block_size: int) -> int:
    """The part of it that a step may add."""
    return max(block_size, MAX_STEP_ROWS)
