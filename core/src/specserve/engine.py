"""The engine: the step loop's five stages and the requests they serve. Synchronous, one thread at a time.

Everything it is made of is given to it complete (see `specserve.assembly`); the async front lives in
`specserve.async_engine`. In the core only `assembly` imports this module.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from specserve.admission import Limits, check_request, queue_full
from specserve.commit import Committer
from specserve.errors import QueueFullError
from specserve.request import Request
from specserve.sampling.seeds import random_seed
from specserve.text.stops import StopStrings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from specserve.batch import Batch
    from specserve.kv.cache import KVCache
    from specserve.metrics import EngineMetrics
    from specserve.protocols import DraftPlanner, LogitsProcessor, Metric, Observer, Tokenizer, Verifier
    from specserve.runner import Runner
    from specserve.scheduler import Scheduler
    from specserve.speculation.drafting import Drafting, NoDraft
    from specserve.types import Delta, GenerateRequest, Verdict


class EngineParts(NamedTuple):
    """What an engine is made of."""

    scheduler: Scheduler
    runner: Runner
    verifier: Verifier
    drafting: Drafting | NoDraft
    planner: DraftPlanner
    cache: KVCache
    processors: Sequence[LogitsProcessor]
    observers: Sequence[Observer]
    tokenizer: Tokenizer
    metrics: EngineMetrics
    limits: Limits
    max_waiting: int
    checks: Sequence[Callable[[GenerateRequest], object]] = ()
    """What plugins say of a request before it is taken: each may raise a RequestError."""


class Engine:
    def __init__(self, parts: EngineParts) -> None:
        self.parts = parts
        self.scheduler, self.runner, self.verifier, self.drafting = parts[:4]
        self.planner, self.metrics = parts.planner, parts.metrics
        self.committer = Committer(self.scheduler, parts.cache, self.metrics, self.forget)
        self.requests: dict[str, Request] = {}
        self.num_added = 0

    # --- requests -----------------------------------------------------------------------------------

    def check(self, request: GenerateRequest) -> None:
        """Raise a `RequestError` unless this engine can serve the request. Any thread may ask."""
        check_request(request, self.parts.limits)
        for check in self.parts.checks:
            check(request)
        if len(self.scheduler.waiting) >= self.parts.max_waiting:
            raise QueueFullError(queue_full(self.parts.max_waiting))

    def add(self, wire: GenerateRequest) -> Request:
        """Take a checked request."""
        assert wire.request_id not in self.requests, f"request {wire.request_id!r} is running already"
        limits, params = self.parts.limits, wire.params
        longest = min(len(wire.prompt_token_ids) + params.max_tokens, limits.max_model_len, limits.cache_tokens)
        request = Request.admit(
            wire,
            seed=random_seed() if params.seed is None else params.seed,
            arrival=time.monotonic(),
            order=self.num_added,
            max_len=longest,
        )
        self.num_added += 1
        started = (processor.start(request, limits.vocab_size) for processor in self.parts.processors)
        request.processors = [state for state in started if state is not None]
        if params.stop:
            stream = self.parts.tokenizer.stream(wire.prompt_token_ids, skip_special_tokens=params.skip_special_tokens)
            request.stop_text = StopStrings(params.stop, stream)
        self.requests[request.id] = request
        self.scheduler.add(request)
        self.drafting.start(request)
        return request

    def abort(self, request_id: str) -> None:
        """Forget the request and free its blocks; unknown ids are those that just ended."""
        request = self.requests.get(request_id)
        if request is not None:
            request.finish_reason = "abort"
            self.metrics.request_success["abort"] += 1
            self.scheduler.remove(request)
            self.forget(request)
            self.gauge()

    def forget(self, request: Request) -> None:
        del self.requests[request.id]
        self.drafting.stop(request)

    @property
    def has_work(self) -> bool:
        return not self.scheduler.is_idle

    # --- the loop -----------------------------------------------------------------------------------

    def step(self) -> list[Delta]:
        """One forward pass and everything it decides."""
        began = time.perf_counter()
        batch = self.scheduler.schedule()
        if batch is None:
            return []
        output = self.runner.forward(batch)
        verdict = self.verifier.verify(batch, output)
        seconds = time.perf_counter() - began  # what a draft's width can change: committing and drafting come after
        deltas = self.committer.commit(batch, verdict)
        self.drafting.draft(batch, output, verdict)
        self.watch(batch, verdict, seconds)
        return deltas

    def watch(self, batch: Batch, verdict: Verdict, seconds: float) -> None:
        """Learn and count; nothing here can change a token."""
        self.metrics.num_steps += 1
        self.gauge()
        self.planner.learn(batch, verdict, seconds)
        for observer in self.parts.observers:
            observer.observe(batch, verdict)

    def gauge(self) -> None:
        metrics, scheduler = self.metrics, self.scheduler
        metrics.num_requests_running = len(scheduler.running)
        metrics.num_requests_waiting = len(scheduler.waiting)
        metrics.kv_cache_usage = scheduler.pool.usage

    def run(self, requests: Iterable[GenerateRequest], on_delta: Callable[[Delta], None]) -> None:
        """Serve these requests to their end, synchronously: for tests, benches and scripts."""
        for request in requests:
            self.check(request)
            self.add(request)
        while self.has_work:
            for delta in self.step():
                on_delta(delta)
        self.check_integrity()

    def observer_metrics(self) -> list[Metric]:
        return [metric for observer in self.parts.observers for metric in observer.metrics()]

    def check_integrity(self) -> None:
        """The conservation laws; `AssertionError` names the one that broke."""
        self.scheduler.check_integrity()
        queued = {r.id for r in [*self.scheduler.running, *self.scheduler.waiting]}
        assert set(self.requests) == queued, "the engine and its scheduler know different requests"
