"""Applies a verdict: appends tokens, moves accepted tree paths in the KV cache, ends requests, counts.

The last stage of a step that changes requests. What it returns is all that leaves the engine. A fault of one request
ends that request here, whichever stage found it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from specserve.batch.admitted import assign
from specserve.batch.drafts import sources_of
from specserve.engine.request_metrics import count_end, count_tokens
from specserve.faults import FAULTS, RequestFault
from specserve.kv.slots import slots_of
from specserve.types import RequestOutput

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.batch.batch import ScheduledBatch
    from specserve.batch.request import Request
    from specserve.batch.span import ScheduledSpan
    from specserve.engine.scheduler import Scheduler
    from specserve.kv.cache import KVCache
    from specserve.metrics import EngineMetrics
    from specserve.plugins.blame import Blame
    from specserve.types import (
        Draft,
        FinishReason,
        SpanVerdict,
        SpeculationStats,
        Verdict,
    )


class Committer:
    """`on_end` is called for every request that ends, after its blocks are free."""

    def __init__(
        self,
        scheduler: Scheduler,
        cache: KVCache,
        metrics: EngineMetrics,
        blame: Blame,
        on_end: Callable[[Request], None],
    ) -> None:
        self.scheduler, self.cache, self.metrics, self.blame, self.on_end = scheduler, cache, metrics, blame, on_end

    def commit(self, batch: ScheduledBatch, verdict: Verdict) -> list[RequestOutput]:
        """One output per request that got tokens or prompt log-probabilities."""
        now, tokens_before = time.monotonic(), self.metrics.prompt_tokens_computed + self.metrics.generation_tokens
        in_place = self.move_accepted(batch, verdict)
        outputs = []
        for span, decided in zip(batch.spans, verdict.spans, strict=True):
            if span.request.last_token is None:
                assign(span.request, "num_prompt_steps", span.request.num_prompt_steps + 1)
            if span.drafted:
                self.count_speculation(span, decided)
            if decided.tokens:
                outputs.append(self.append(span, decided, now, in_place))
            elif decided.fault is not None:
                outputs.append(self.fail(span.request, decided.fault))
            else:
                self.scheduler.settle(span, (), 0)
                self.metrics.prompt_tokens_computed += span.known
                if decided.prompt_logprobs:
                    count_scored(span.request, len(decided.prompt_logprobs))
                    outputs.append(RequestOutput(span.request.id, (), prompt_logprobs=decided.prompt_logprobs))
        tokens = self.metrics.prompt_tokens_computed + self.metrics.generation_tokens
        self.metrics.iteration_tokens.add(tokens - tokens_before)
        return outputs

    def append(self, span: ScheduledSpan, decided: SpanVerdict, now: float, in_place: bool) -> RequestOutput:
        request, tokens, accepted = span.request, decided.tokens, len(decided.path)
        is_first = request.last_token is None
        list.extend(request.tokens, tokens)
        fault = self.commit_to_processors(request, tokens) if request.processors else None
        in_its_place = accepted if in_place else num_leading_in_place(decided.path)
        self.scheduler.settle(span, decided.path, in_its_place)
        if is_first:
            self.metrics.prompt_tokens_computed += span.known
        count_tokens(self.metrics, request, len(tokens), now)
        if decided.prompt_logprobs:
            count_scored(request, len(decided.prompt_logprobs))
        reason = decided.finish_reason if fault is None else "error"
        if reason is not None:
            self.end(request, reason, now)
        return RequestOutput(
            request.id,
            tokens,
            reason,
            decided.logprobs,
            decided.prompt_logprobs,
            accepted_flags(accepted, len(tokens)),
            drafters_of(span.draft, decided.path, len(tokens)),
            request.stop_string,
            request.cached_tokens if is_first else 0,
            self.stats(request) if reason is not None else None,
            None if fault is None else str(fault),
        )

    def commit_to_processors(self, request: Request, tokens: tuple[int, ...]) -> RequestFault | None:
        """Commit the tokens to the request's processors, up to the first that raises."""
        for state, part in zip(request.processors, request.processor_parts, strict=True):
            try:
                state.commit(tokens)
            except FAULTS as error:
                fault = RequestFault(request.id, f"the logits processor of {part.plugin}", error, part)
                self.note_fault(request, fault)
                return fault
        return None

    def end(self, request: Request, reason: FinishReason, now: float) -> None:
        assign(request, "finish_reason", reason)
        count_end(self.metrics, request, reason, now)
        self.scheduler.remove(request)
        self.on_end(request)

    def fail(self, request: Request, fault: RequestFault) -> RequestOutput:
        """End the request because of what its own part raised."""
        self.note_fault(request, fault)
        self.end(request, "error", time.monotonic())
        return RequestOutput(request.id, (), "error", stats=self.stats(request), error=str(fault))

    def stats(self, request: Request) -> SpeculationStats:
        return request.stats(self.scheduler.planner.request_stats(request.id))

    def note_fault(self, request: Request, fault: RequestFault) -> None:
        assign(request, "error_type", type(fault.error).__name__)
        self.count_fault(fault)

    def count_fault(self, fault: RequestFault) -> None:
        consequence = f"; request {fault.request_id} ends, the others go on"
        if fault.part is not None:
            fault.part.failed(fault.error, consequence)
        else:
            self.metrics.faults.count(*self.blame.find(fault.error, "request"), fault.error, consequence)

    def move_accepted(self, batch: ScheduledBatch, verdict: Verdict) -> bool:
        """Move the keys and values of accepted draft tokens to the first draft slots of their span. False where that
        failed: they are computed again."""
        source: list[int] = []
        target: list[int] = []
        size = self.scheduler.block_size
        for span, decided in zip(batch.spans, verdict.spans, strict=True):
            path = decided.path
            if not path or path[-1] == len(path) - 1:
                continue
            blocks, first = span.request.blocks, span.start + span.known
            moved = [(first + node, first + i) for i, node in enumerate(path) if node != i]
            source += slots_of(blocks, (old for old, _ in moved), size)
            target += slots_of(blocks, (new for _, new in moved), size)
        try:
            self.cache.move(source, target)
        except FAULTS as error:
            plugin, part = self.blame.find(error, "KV cache")
            self.metrics.faults.count(plugin, part, error, "; accepted draft tokens are computed again")
            return False
        return True

    def count_speculation(self, span: ScheduledSpan, decided: SpanVerdict) -> None:
        request, accepted, metrics = span.request, len(decided.path), self.metrics
        assign(request, "num_spec_steps", request.num_spec_steps + 1)
        assign(request, "num_draft_tokens", request.num_draft_tokens + span.drafted)
        assign(request, "num_accepted_draft_tokens", request.num_accepted_draft_tokens + accepted)
        histogram = request.acceptance_histogram
        list.extend(histogram, [0] * (accepted + 1 - len(histogram)))
        list.__setitem__(histogram, accepted, histogram[accepted] + 1)
        metrics.num_drafts += 1
        metrics.num_draft_tokens += span.drafted
        metrics.num_accepted_tokens += accepted
        for depth in range(accepted):
            metrics.accepted_per_position[depth] += 1
        if span.draft is not None:
            self.count_drafters(request, span.draft, decided.path)

    def count_drafters(self, request: Request, draft: Draft, path: tuple[int, ...]) -> None:
        if draft.sources is None:
            self.count_drafter(request, draft.source, len(draft.tokens), len(path))
            return
        accepted = [draft.sources[node] for node in path]
        for name in set(draft.sources):
            self.count_drafter(request, name, draft.sources.count(name), accepted.count(name))

    def count_drafter(self, request: Request, name: str, drafted: int, accepted: int) -> None:
        self.metrics.draft_tokens_by_drafter[name] += drafted
        self.metrics.accepted_tokens_by_drafter[name] += accepted
        before_drafted, before_accepted = request.by_drafter.get(name, (0, 0))
        counts = before_drafted + drafted, before_accepted + accepted
        dict.__setitem__(request.by_drafter, name, counts)


def count_scored(request: Request, count: int) -> None:
    assign(request, "num_prompt_scored", request.num_prompt_scored + count)


ONE_TARGET_TOKEN = (False,)
BY_TARGET = ("",)


def accepted_flags(accepted: int, count: int) -> tuple[bool, ...]:
    """Per token: whether it was an accepted draft token. Accepted ones come first."""
    if count == 1 and not accepted:
        return ONE_TARGET_TOKEN
    return (True,) * accepted + (False,) * (count - accepted)


def drafters_of(draft: Draft | None, path: tuple[int, ...], count: int) -> tuple[str, ...]:
    """Per token: the drafter whose accepted draft token it was, "" for a token of the target alone."""
    if draft is None or not path:
        return BY_TARGET * count
    names = sources_of(draft)
    return tuple(names[node] for node in path) + BY_TARGET * (count - len(path))


def num_leading_in_place(path: tuple[int, ...]) -> int:
    """How many accepted nodes, from the first on, lie where they belong without being moved."""
    return next((i for i, node in enumerate(path) if node != i), len(path))
