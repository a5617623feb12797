"""Chooses the spans that the next step computes, and updates the queues and blocks after it.

Continuous batching under one token budget: running requests that need one token come first, then prompt chunks,
then waiting requests as long as slots, budget and KV blocks last, then draft tokens in what is left. Requests
rank by (priority, arrival). When a committed token finds no block, the lowest-ranking running request is
preempted and recomputed later; a draft token never preempts a request.
"""

from __future__ import annotations

import time
from bisect import insort
from typing import TYPE_CHECKING

from specserve.batch.admitted import OwnedList, assign
from specserve.batch.drafts import first
from specserve.batch.span import ScheduledSpan
from specserve.engine.states import NO_STATES
from specserve.kv.slots import num_blocks_for
from specserve.sampling.sampler import is_greedy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.batch.request import Request
    from specserve.config import EngineConfig
    from specserve.engine.prefix_cache import PrefixCache
    from specserve.engine.states import NoStates
    from specserve.kv.blocks import BlockPool
    from specserve.metrics import EngineMetrics
    from specserve.protocols import DraftPlanner
    from specserve.types import Draft

PROMPT_SCORING_ROWS = 128
"""Rows of one request's prompt that are scored in one step: bounds the memory of their logits."""
UNBOUNDED = 1 << 62


class Scheduler:
    """Owns the two queues, `waiting` and `running`, both sorted by rank."""

    def __init__(
        self,
        config: EngineConfig,
        pool: BlockPool,
        planner: DraftPlanner,
        metrics: EngineMetrics,
        prefix_cache: PrefixCache,
        states: NoStates = NO_STATES,
    ) -> None:
        self.pool, self.planner, self.metrics, self.states = pool, planner, metrics, states
        self.block_size = config.block_size
        self.max_num_seqs, self.token_budget = config.max_num_seqs, config.max_num_batched_tokens
        self.min_chunk = 0 if config.chunked_prefill else UNBOUNDED
        """A prompt chunk of up to this many tokens may exceed the budget."""
        self.prefix_cache = prefix_cache
        self.waiting: list[Request] = []
        self.running: list[Request] = []

    @property
    def is_idle(self) -> bool:
        return not self.waiting and not self.running

    def add(self, request: Request) -> None:
        insort(self.waiting, request, key=lambda r: r.rank)

    def remove(self, request: Request) -> None:
        """Forget a request that ended or was aborted, and free its blocks. It keeps their list: before the next step is
        scheduled, drafters may complete what they have of published blocks."""
        (self.running if request in self.running else self.waiting).remove(request)
        self.pool.release(request.blocks)
        self.states.release(request)

    # --- choosing spans -----------------------------------------------------------------------------

    def schedule(self) -> list[ScheduledSpan]:
        """The next step's spans, with their blocks allocated; none when there is nothing to do."""
        budget = self.token_budget
        lengths: dict[Request, int] = {}
        decoding = [r for r in self.running if len(r.tokens) - r.computed == 1]
        prefilling = [r for r in self.running if len(r.tokens) - r.computed > 1]
        for request in decoding:  # a request without blocks was preempted meanwhile
            if budget > 0 and request.blocks and self.allocate(request, 1, lengths):
                lengths[request] = 1
                budget -= 1
        for request in prefilling:
            if budget > 0 and request.blocks:
                budget -= self.schedule_chunk(request, budget, lengths)
        budget -= self.admit(budget, lengths)
        return self.make_spans(lengths, budget)

    def schedule_chunk(self, request: Request, budget: int, lengths: dict[Request, int]) -> int:
        """Schedule the next chunk of a request's committed tokens; returns its length, 0 when it must wait."""
        chunk = min(len(request.tokens) - request.computed, max(budget, self.min_chunk))
        if request.params.prompt_logprobs is not None:
            chunk = min(chunk, PROMPT_SCORING_ROWS)
        if not self.allocate(request, chunk, lengths):
            return 0
        lengths[request] = chunk
        return chunk

    def admit(self, budget: int, lengths: dict[Request, int]) -> int:
        """Start waiting requests in rank order until something runs out; returns the rows they take."""
        taken = 0
        while self.waiting and len(self.running) < self.max_num_seqs and taken < budget:
            request = self.waiting[0]
            matched = self.states.usable(request, self.prefix_cache.match(request))
            needed = num_blocks_for(len(request.tokens) + 1, self.block_size) - len(matched)
            matched_idle = sum(self.pool.holders[b] == 0 for b in matched)
            if self.running and not self.pool.can_allocate(needed + matched_idle):
                break  # it would preempt others; alone it fits, which `check_request` has checked
            del self.waiting[0]
            insort(self.running, request, key=lambda r: r.rank)
            self.start(request, matched)
            taken += self.schedule_chunk(request, budget - taken, lengths)
        return taken

    def start(self, request: Request, matched: list[int]) -> None:
        """Let the request run, from behind the blocks that the prefix cache matched."""
        self.pool.hold(matched)
        self.states.start(request, len(matched))
        assign(request, "blocks", OwnedList(matched))
        assign(request, "computed", len(matched) * self.block_size)
        assign(request, "num_published", len(matched))
        if request.first_scheduled is None:
            now = time.monotonic()
            assign(request, "first_scheduled", now)
            assign(request, "cached_tokens", min(request.computed, request.prompt_len))
            self.metrics.request_queue_time.add(now - request.arrival)
            self.metrics.prefix_cache_queries += request.prompt_len
            self.metrics.prefix_cache_hits += request.cached_tokens

    # --- blocks -------------------------------------------------------------------------------------

    def allocate(self, request: Request, count: int, lengths: dict[Request, int]) -> bool:
        """Give the request blocks for `count` more tokens. Preempts the lowest-ranking requests where blocks are
        missing and removes them from `lengths`; False if the request itself was preempted."""
        end = request.computed + count
        if end <= len(request.blocks) * self.block_size:
            return True
        missing = num_blocks_for(end, self.block_size) - len(request.blocks)
        while not self.pool.can_allocate(missing):
            victim = self.running[-1]
            self.preempt(victim)
            lengths.pop(victim, None)
            if victim is request:
                return False
        list.extend(request.blocks, self.pool.allocate(missing))
        return True

    def preempt(self, request: Request) -> None:
        """Free the request's blocks; it waits and is recomputed later, to the same bits."""
        self.running.remove(request)
        self.pool.release(request.blocks)
        self.states.release(request)
        assign(request, "blocks", OwnedList())
        assign(request, "computed", 0)
        assign(request, "num_published", 0)
        assign(request, "draft", None)
        list.append(request.preempted_at, time.monotonic())
        self.metrics.num_preemptions += 1
        self.add(request)

    # --- draft tokens -------------------------------------------------------------------------------

    def make_spans(self, lengths: dict[Request, int], budget: int) -> list[ScheduledSpan]:
        """Spans of the committed tokens, with the planner's choice of draft tokens behind those that reach the end."""
        ends = [r for r, n in lengths.items() if r.computed + n == len(r.tokens)]
        choices: dict[Request, Draft | int | None] = {}
        if any(r.draft is not None for r in ends):
            chosen = self.planner.choose(ends, max(budget, 0), sum(lengths.values()))
            choices = dict(zip(ends, chosen, strict=True))
        spans = []
        for request, length in lengths.items():
            draft = self.fit_draft(request, choices.get(request), budget)
            drafted = len(draft.tokens) if draft else 0
            budget -= drafted
            scored, greedy = num_scored_rows(request, length, drafted), is_greedy(request)
            span = ScheduledSpan.of(request, request.computed, length, scored=scored, draft=draft, is_greedy=greedy)
            spans.append(self.states.placed(span))
        return spans

    def fit_draft(self, request: Request, choice: Draft | int | None, budget: int) -> Draft | None:
        """What the planner chose, cut to the budget, to what recurrent layers can follow, and to the blocks that are
        available without preemption."""
        if isinstance(choice, int):
            draft = request.draft and first(request.draft, min(choice, budget))
        else:
            draft = choice and first(choice, budget)
        if draft is not None and self.states.most_nodes is not None:
            draft = first(draft, self.states.most_nodes)
        if draft is None:
            return None
        end = len(request.tokens) + len(draft.tokens)
        missing = min(num_blocks_for(end, self.block_size) - len(request.blocks), self.pool.num_available)
        if missing > 0:
            list.extend(request.blocks, self.pool.allocate(missing))
        free_slots = len(request.blocks) * self.block_size - len(request.tokens)
        return first(draft, free_slots)

    # --- after the step -----------------------------------------------------------------------------

    def settle(self, span: ScheduledSpan, path: Sequence[int], num_in_place: int) -> None:
        """The span is computed and its new tokens are appended: advance `computed`, free the blocks of rejected
        draft tokens, publish full blocks. `path`: the accepted draft tokens; `num_in_place`: of how many of them the
        keys and values lie where they belong.

        The last token never counts as computed: as a bonus token it has no keys and values yet, and as an accepted
        draft token it must not either, so that caches are the same with and without speculation.
        """
        request = span.request
        assign(request, "computed", min(span.start + span.known + num_in_place, len(request.tokens) - 1))
        assign(request, "draft", None)
        if span.drafted:  # blocks that only held draft tokens would preempt a request in the next step
            needed = num_blocks_for(len(request.tokens), self.block_size)
            self.pool.release(request.blocks[needed:])
            list.__delitem__(request.blocks, slice(needed, None))
        if request.computed // self.block_size > request.num_published:
            self.prefix_cache.publish(request)
        self.states.settle(span, path)

    def check_integrity(self) -> None:
        """Blocks are conserved, every request is in one queue, and holds the blocks that its KV needs."""
        self.pool.check_integrity([r.blocks for r in [*self.running, *self.waiting]])
        for request in self.running:
            assert 0 <= request.computed < len(request.tokens)
            assert len(request.blocks) * self.block_size >= request.computed
        for request in self.waiting:
            assert not request.blocks
        self.states.check_integrity(self.running)
        ids = [r.id for r in [*self.running, *self.waiting]]
        assert len(set(ids)) == len(ids)


def num_scored_rows(request: Request, length: int, drafted: int) -> int:
    """How many trailing rows get logits: the draft tokens and the last committed token, or more of a scored prompt."""
    scored = drafted + 1 if request.computed + length == len(request.tokens) else 0
    if request.params.prompt_logprobs is not None:
        first = max(request.num_prompt_scored, request.computed)
        if first < request.prompt_len - 1:
            scored = max(scored, request.computed + length + drafted - first)
    return scored
