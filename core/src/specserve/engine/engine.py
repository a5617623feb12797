"""The engine: the step loop's five stages and the requests they serve. Synchronous, one thread at a time.

It gets its parts complete (see `specserve.engine.assembly`); its asyncio interface is in
`specserve.engine.async_engine`. Only `assembly` imports this module at run time.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from specserve.batch.admitted import assign, finalize
from specserve.batch.request import Request
from specserve.engine.admission import EngineLimits, check_request, queue_full
from specserve.engine.cache_journal import NO_JOURNAL
from specserve.engine.commit import Committer
from specserve.engine.isolation import Computed, StepIsolation
from specserve.engine.queue_wait import QueueWait
from specserve.engine.step_reports import reports_of
from specserve.faults import FAULTS, BadAnswerError, RequestFault
from specserve.plugins.blame import Blame
from specserve.sampling.seeds import random_seed
from specserve.text.stop_strings import StopStringMatcher
from specserve.types import RequestOutput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from specserve.batch.builder import BatchBuilder
    from specserve.batch.span import ScheduledSpan
    from specserve.engine.cache_journal import NoJournal
    from specserve.engine.drafting import Drafting, NoDraft
    from specserve.engine.scheduler import Scheduler
    from specserve.errors import QueueFullError
    from specserve.guards.observer import GuardedObserver
    from specserve.guards.processor import GuardedProcessor
    from specserve.kv.cache import KVCache
    from specserve.metrics import EngineMetrics
    from specserve.models.runner import Runner
    from specserve.protocols import DraftPlanner, Metric, MetricsSource, Observer, OutputObserver, Tokenizer, Verifier
    from specserve.types import GenerateRequest


class EngineParts(NamedTuple):
    """What an engine is made of."""

    scheduler: Scheduler
    builder: BatchBuilder
    runner: Runner
    verifier: Verifier
    drafting: Drafting | NoDraft
    planner: DraftPlanner
    cache: KVCache
    processors: Sequence[GuardedProcessor]
    guarded_observers: Sequence[GuardedObserver]
    tokenizer: Tokenizer
    metrics: EngineMetrics
    limits: EngineLimits
    max_waiting: int
    draw_seed: Callable[[int], int] = random_seed
    """The seed of a request that has none; its argument counts the requests before it."""
    checks: Sequence[Callable[[GenerateRequest], object]] = ()
    """Checks of plugins before a request is taken: each may raise a RequestError."""
    blame: Blame = Blame()
    check_device: Callable[[], object] = bool
    """Raises when the device is lost."""
    max_adapters: int | None = None
    """None: no plugin serves adapters. Otherwise as in `AdapterUse`."""
    cache_journal: NoJournal = NO_JOURNAL

    @property
    def observers(self) -> list[Observer | OutputObserver | MetricsSource]:
        return [guarded.observer for guarded in self.guarded_observers]


class Engine:
    def __init__(self, parts: EngineParts) -> None:
        self.parts = parts
        self.scheduler, self.runner, self.verifier, self.drafting = (
            parts.scheduler, parts.runner, parts.verifier, parts.drafting,
        )  # fmt: skip
        self.planner, self.metrics = parts.planner, parts.metrics
        self.metrics.state_bytes = self.scheduler.states.num_bytes
        self.isolation = StepIsolation(self.compute, parts.metrics, parts.blame, parts.check_device)
        self.committer = Committer(self.scheduler, parts.cache, self.metrics, parts.blame, self.forget)
        self.requests: dict[str, Request] = {}
        self.num_added = 0
        self.queue_wait = QueueWait()
        self.listeners: list[Callable[[Request], object]] = []
        """Called with every request that ends, aborted ones too. They do not raise."""

    # --- requests -----------------------------------------------------------------------------------

    def check(self, request: GenerateRequest) -> None:
        """Raise a `RequestError` unless this engine can serve the request. Any thread may ask."""
        check_request(request, self.parts.limits)
        for check in self.parts.checks:
            check(request)
        if len(self.scheduler.waiting) >= self.parts.max_waiting:
            raise self.queue_full()

    def queue_full(self) -> QueueFullError:
        """What a request gets that finds the queue full. Any thread may ask."""
        seconds = self.queue_wait.seconds(len(self.scheduler.waiting), self.num_scheduled)
        return queue_full(self.parts.max_waiting, seconds)

    def add(self, wire: GenerateRequest) -> Request:
        """Take a checked request. Raises RequestFault, and takes nothing, where one of its own parts raises."""
        assert wire.request_id not in self.requests, f"request {wire.request_id!r} is running already"
        limits, params = self.parts.limits, wire.params
        longest = min(len(wire.prompt_token_ids) + params.max_tokens, limits.max_model_len, limits.cache_tokens)
        admitted = Request.admit(
            wire,
            seed=self.parts.draw_seed(self.num_added) if params.seed is None else params.seed,
            arrival=time.monotonic(),
            order=self.num_added,
            max_len=longest,
        )
        request = finalize(admitted)
        self.num_added += 1
        for processor in self.parts.processors:
            processor.start(request, limits.vocab_size)
        if params.stop:
            self.add_stop_matcher(request, wire.prompt_token_ids)
        self.requests[request.id] = request
        self.scheduler.add(request)
        self.drafting.start(request)
        return request

    def rejected(self, fault: RequestFault) -> RequestOutput:
        """The only output of a request that `add` did not take."""
        self.committer.count_fault(fault)
        self.metrics.request_success["error"] += 1
        return RequestOutput(fault.request_id, (), "error", error=str(fault))

    def add_stop_matcher(self, request: Request, prompt: Sequence[int]) -> None:
        params = request.params
        try:
            stream = self.parts.tokenizer.stream(prompt, skip_special_tokens=params.skip_special_tokens)
            assign(request, "stop_matcher", StopStringMatcher(params.stop, stream))
        except FAULTS as error:
            raise RequestFault(request.id, "the text stream for its stop strings", error) from error

    def abort(self, request_id: str) -> None:
        """Forget the request and free its blocks; unknown ids are those that just ended."""
        request = self.requests.get(request_id)
        if request is not None:
            assign(request, "finish_reason", "abort")
            self.metrics.request_success["abort"] += 1
            self.scheduler.remove(request)
            self.forget(request)
            self.update_gauges()

    def reset_prefix_cache(self) -> None:
        """Forget every cached prefix that no running request uses. Between steps only."""
        self.scheduler.prefix_cache.reset()
        self.parts.cache_journal.deliver()

    def forget(self, request: Request) -> None:
        del self.requests[request.id]
        self.drafting.stop(request)
        for listener in self.listeners:
            listener(request)
        if request.finish_reason != "error":
            for part in request.processor_parts:
                part.succeeded()

    @property
    def has_work(self) -> bool:
        return not self.scheduler.is_idle

    # --- the loop -----------------------------------------------------------------------------------

    def step(self) -> list[RequestOutput]:
        """One forward pass and everything it decides; in parts, where a request makes it raise."""
        began = time.perf_counter()
        spans = self.scheduler.schedule()
        scheduling = time.perf_counter() - began
        outputs: list[RequestOutput] = []
        for result in self.isolation.results(spans) if spans else ():
            if isinstance(result, RequestFault):
                outputs.append(self.fail(result))
            else:
                outputs += self.finish(result, scheduling)
        self.parts.cache_journal.deliver()
        return outputs

    def compute(self, spans: Sequence[ScheduledSpan]) -> Computed:
        """Build, forward, verify."""
        began, recording = time.perf_counter(), self.metrics.graph_recording_seconds
        batch = self.parts.builder.schedule(spans)
        output = self.runner.forward(batch)
        if len(output.logits) != batch.num_scored:
            raise BadAnswerError("gave another number of logits than of scored rows")
        verdict = self.verifier.verify(batch, output)
        recording = self.metrics.graph_recording_seconds - recording
        return Computed(batch, output, verdict, time.perf_counter() - began - recording)

    def finish(self, computed: Computed, scheduling: float) -> list[RequestOutput]:
        """Commit, observe, draft, learn. Commit comes first, so that a drafter never sees a request that has just
        ended. The planner learns what the step took up to there, with `scheduling`: what a draft's width can change."""
        began = time.perf_counter()
        batch, output, verdict, seconds = computed
        reports = reports_of(batch, verdict, self.drafting, self.planner)
        outputs = self.committer.commit(batch, verdict)
        seconds += scheduling + time.perf_counter() - began
        for observer in self.parts.guarded_observers:  # before drafters, whose passes may overwrite the logits
            observer.observe(batch, verdict, output)
        self.drafting.draft(batch, output, verdict, seconds)
        self.metrics.num_steps += 1
        self.metrics.graph_steps[output.graph] += 1
        self.update_gauges()
        reports.note_words()
        self.drafting.learn(batch, verdict, seconds)
        return reports.add_to(outputs, computed.seconds + scheduling + time.perf_counter() - began)

    def fail(self, fault: RequestFault) -> RequestOutput:
        """End the request that raised; the others go on."""
        output = self.committer.fail(self.requests[fault.request_id], fault)
        self.update_gauges()
        return output

    def update_gauges(self) -> None:
        metrics, scheduler = self.metrics, self.scheduler
        metrics.num_requests_running = len(scheduler.running)
        metrics.num_requests_waiting = len(scheduler.waiting)
        metrics.kv_cache_usage = scheduler.pool.usage
        states = scheduler.states
        metrics.states_running, metrics.states_saved = states.num_running, states.num_saved
        self.queue_wait.observe(len(scheduler.waiting), self.num_scheduled)

    @property
    def num_scheduled(self) -> int:
        """Requests that were scheduled for the first time, since the start."""
        return sum(self.metrics.request_queue_time.counts)

    def run(self, requests: Iterable[GenerateRequest], on_output: Callable[[RequestOutput], None]) -> None:
        """Serve these requests to their end, synchronously: for tests, benchmarks and scripts."""
        for request in requests:
            self.check(request)
            try:
                self.add(request)
            except RequestFault as fault:
                on_output(self.rejected(fault))
        while self.has_work:
            for output in self.step():
                on_output(output)
        self.check_integrity()

    def observer_metrics(self) -> list[Metric]:
        return [metric for observer in self.parts.guarded_observers for metric in observer.metrics()]

    def check_integrity(self) -> None:
        """Check the invariants; `AssertionError` names the one that does not hold."""
        self.scheduler.check_integrity()
        queued = {r.id for r in [*self.scheduler.running, *self.scheduler.waiting]}
        assert set(self.requests) == queued, "the engine and its scheduler know different requests"
