"""Which spans the next step computes, and what its verdict changes.

Continuous batching under one token budget: running requests that need one token first, then prompt chunks,
then waiting requests as long as slots, budget and KV blocks last, then guesses in what is left. Requests
rank by (priority, arrival). When a committed token finds no block, the lowest-ranking running request is
preempted and recomputed later; a guess never preempts anyone.
"""

from __future__ import annotations

import time
from bisect import insort
from typing import TYPE_CHECKING

from specserve.batch.drafts import keep
from specserve.batch.span import Span
from specserve.kv.blocks import BlockPool, chain_hash, root_hash, turn_hash

if TYPE_CHECKING:
    from specserve.batch.request import Request
    from specserve.metrics import EngineMetrics
    from specserve.protocols import Arithmetic, DraftPlanner
    from specserve.types import Draft

PROMPT_SCORING_ROWS = 128
"""Rows of one request's prompt that are scored in one step: bounds the memory of their logits."""


class Scheduler:
    def __init__(
        self,
        *,
        pool: BlockPool,
        block_size: int,
        planner: DraftPlanner,
        metrics: EngineMetrics,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        chunked_prefill: bool,
        prefix_cache: bool,
        arithmetic: Arithmetic,
    ) -> None:
        self.pool, self.block_size, self.planner, self.metrics = pool, block_size, planner, metrics
        self.max_num_seqs, self.token_budget = max_num_seqs, max_num_batched_tokens
        self.least_chunk = 0 if chunked_prefill else 1 << 62
        """A prompt chunk may exceed the budget up to this."""
        self.prefix_cache, self.arithmetic = prefix_cache, arithmetic
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        """Both sorted by rank."""

    @property
    def is_idle(self) -> bool:
        return not self.waiting and not self.running

    def add(self, request: Request) -> None:
        insort(self.waiting, request, key=lambda r: r.rank)

    def remove(self, request: Request) -> None:
        """Forget a request that ended or was aborted; its blocks are free from now on."""
        (self.running if request in self.running else self.waiting).remove(request)
        self.pool.release(request.blocks)
        request.blocks = []

    # --- choosing spans -----------------------------------------------------------------------------

    def schedule(self) -> list[Span]:
        """The next step's spans, with their blocks allocated; none when there is nothing to do."""
        budget = self.token_budget
        lengths: dict[Request, int] = {}
        decoding = [r for r in self.running if len(r.tokens) - r.computed == 1]
        prefilling = [r for r in self.running if len(r.tokens) - r.computed > 1]
        for request in decoding:  # one that was preempted meanwhile has lost its blocks
            if budget > 0 and request.blocks and self.make_room(request, 1, lengths):
                lengths[request] = 1
                budget -= 1
        for request in prefilling:
            if budget > 0 and request.blocks:
                budget -= self.schedule_chunk(request, budget, lengths)
        budget -= self.admit(budget, lengths)
        return self.with_guesses(lengths, budget)

    def schedule_chunk(self, request: Request, budget: int, lengths: dict[Request, int]) -> int:
        """Schedule the next chunk of a request's committed tokens; returns its length, 0 when it must wait."""
        chunk = min(len(request.tokens) - request.computed, max(budget, self.least_chunk))
        if request.params.prompt_logprobs is not None:
            chunk = min(chunk, PROMPT_SCORING_ROWS)
        if not self.make_room(request, chunk, lengths):
            return 0
        lengths[request] = chunk
        return chunk

    def admit(self, budget: int, lengths: dict[Request, int]) -> int:
        """Start waiting requests in rank order until something runs out; returns the rows they take."""
        taken = 0
        while self.waiting and len(self.running) < self.max_num_seqs and taken < budget:
            request = self.waiting[0]
            matched = self.match_prefix(request)
            needed = -(-(len(request.tokens) + 1) // self.block_size) - len(matched)
            held_idle = sum(self.pool.holders[b] == 0 for b in matched)
            if self.running and not self.pool.can_allocate(needed + held_idle):
                break  # it would only push out others; alone it fits, admission saw to that
            del self.waiting[0]
            insort(self.running, request, key=lambda r: r.rank)
            self.start(request, matched)
            taken += self.schedule_chunk(request, budget - taken, lengths)
        return taken

    def start(self, request: Request, matched: list[int]) -> None:
        self.pool.hold(matched)
        request.blocks = list(matched)
        request.computed = len(matched) * self.block_size
        request.num_published = len(matched)
        if request.first_scheduled is None:
            request.first_scheduled = time.monotonic()
            request.cached_tokens = min(request.computed, request.prompt_len)
            self.metrics.request_queue_time.add(request.first_scheduled - request.arrival)
            self.metrics.prefix_cache_queries += request.prompt_len
            self.metrics.prefix_cache_hits += request.cached_tokens

    def match_prefix(self, request: Request) -> list[int]:
        """Known blocks that hold the request's first tokens, short of its last one, which must be computed."""
        if not self.prefix_cache or request.params.prompt_logprobs is not None:
            return []
        full = (len(request.tokens) - 1) // self.block_size
        self.extend_hashes(request, full)
        return self.pool.match(request.hashes[:full])

    def extend_hashes(self, request: Request, count: int) -> None:
        size, hashes = self.block_size, request.hashes
        while len(hashes) < count:
            begin = len(hashes) * size
            parent = hashes[-1] if hashes else root_hash(request.namespace, self.arithmetic.prompt)
            of_prompt = max(0, request.prompt_len - begin)
            if of_prompt < size and self.arithmetic.generated != self.arithmetic.prompt:
                parent = turn_hash(parent, of_prompt, self.arithmetic.generated)
            hashes.append(chain_hash(parent, request.tokens[begin : begin + size]))

    # --- blocks -------------------------------------------------------------------------------------

    def make_room(self, request: Request, count: int, lengths: dict[Request, int]) -> bool:
        """Give the request blocks for `count` more tokens, preempting lower ranks; False if it had to go itself."""
        missing = -(-(request.computed + count) // self.block_size) - len(request.blocks)
        if missing <= 0:
            return True
        while not self.pool.can_allocate(missing):
            victim = self.running[-1]
            self.preempt(victim)
            lengths.pop(victim, None)
            if victim is request:
                return False
        request.blocks += self.pool.allocate(missing)
        return True

    def preempt(self, request: Request) -> None:
        """Take everything back; the request waits and is recomputed, to the same bits."""
        self.running.remove(request)
        self.pool.release(request.blocks)
        request.blocks = []
        request.computed = request.num_published = 0
        request.draft = None
        request.num_preemptions += 1
        self.metrics.num_preemptions += 1
        self.add(request)

    def with_guesses(self, lengths: dict[Request, int], budget: int) -> list[Span]:
        """Complete the spans: guesses, as the planner chooses, behind requests whose tokens are all covered."""
        ends = [r for r, n in lengths.items() if r.computed + n == len(r.tokens)]
        drafts: dict[Request, Draft | None] = {}
        if any(r.draft is not None for r in ends):
            chosen = self.planner.choose(ends, max(budget, 0), sum(lengths.values()))
            drafts = dict(zip(ends, chosen, strict=True))
        spans = []
        for request, length in lengths.items():
            draft = self.fit(request, drafts.get(request), budget)
            budget -= len(draft.tokens) if draft else 0
            drafted = len(draft.tokens) if draft else 0
            scored = self.scored_rows(request, length, drafted)
            spans.append(Span(request, request.computed, length + drafted, drafted, scored, draft, request.draft))
        return spans

    def fit(self, request: Request, draft: Draft | None, budget: int) -> Draft | None:
        """Cut a draft to the budget, and to the blocks that can be had without preempting anyone."""
        draft = draft and keep(draft, range(min(max(budget, 0), len(draft.tokens))))
        if draft is None:
            return None
        end = len(request.tokens) + len(draft.tokens)
        missing = min(-(-end // self.block_size) - len(request.blocks), self.pool.num_available)
        if missing > 0:
            request.blocks += self.pool.allocate(missing)
        room = len(request.blocks) * self.block_size - len(request.tokens)
        return keep(draft, range(min(room, len(draft.tokens))))

    @staticmethod
    def scored_rows(request: Request, length: int, drafted: int) -> int:
        """How many trailing rows get logits: the guesses and the last committed token, or more of the prompt."""
        scored = drafted + 1 if request.computed + length == len(request.tokens) else 0
        if request.params.prompt_logprobs is not None:
            first = max(request.num_prompt_scored, request.computed)
            if first < request.prompt_len - 1:
                scored = max(scored, request.computed + length + drafted - first)
        return scored

    # --- after the step -----------------------------------------------------------------------------

    def settle(self, span: Span, accepted: int) -> None:
        """The span is computed and its new tokens are appended: count what is final, publish full blocks.

        The last token has no KV yet when it came as a bonus, and is not counted when it came as a guess
        either, so that caches are the same with and without speculation.
        """
        request = span.request
        request.computed = min(span.start + span.known + accepted, len(request.tokens) - 1)
        request.draft = None
        if span.drafted:  # blocks of rejected guesses go back, or they would preempt somebody in the next step
            needed = -(-len(request.tokens) // self.block_size)
            self.pool.release(request.blocks[needed:])
            del request.blocks[needed:]
        full = request.computed // self.block_size
        if full > request.num_published and self.prefix_cache:
            self.extend_hashes(request, full)
            for i in range(request.num_published, full):
                self.pool.publish(request.blocks[i], request.hashes[i])
            request.num_published = full

    def check_integrity(self) -> None:
        """Blocks are conserved, every request is in one queue, and holds the blocks its KV needs."""
        self.pool.check_integrity([r.blocks for r in [*self.running, *self.waiting]])
        for request in self.running:
            assert 0 <= request.computed < len(request.tokens)
            assert len(request.blocks) * self.block_size >= request.computed
        for request in self.waiting:
            assert not request.blocks
        ids = [r.id for r in [*self.running, *self.waiting]]
        assert len(set(ids)) == len(ids)
