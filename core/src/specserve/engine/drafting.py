"""After each step: how much is drafted for each request, its draft for the next step, and what the planner learns.

Guards keep faults of drafters and planners away from the requests.
"""

from __future__ import annotations

import time
from types import MappingProxyType
from typing import TYPE_CHECKING

from specserve.batch.admitted import assign
from specserve.batch.drafts import depth_first
from specserve.engine.idle_steps import IdleSteps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from specserve.batch.batch import ScheduledBatch
    from specserve.batch.request import Request
    from specserve.engine.drafters import Drafters
    from specserve.guards.drafter import GuardedDrafter
    from specserve.metrics import EngineMetrics
    from specserve.protocols import DraftPlanner
    from specserve.types import ForwardOutput, Verdict


class NoDraft:
    """No drafter is enabled: plain decoding."""

    guards: Sequence[GuardedDrafter] = ()
    wanted: Mapping[str, int] = MappingProxyType({})

    def __init__(self) -> None:
        self.num_followers = 0

    def start(self, request: Request) -> None:
        self.num_followers += request.speculation.return_steps

    def draft(self, batch: ScheduledBatch, output: ForwardOutput, verdict: Verdict, seconds: float) -> None:
        pass

    def learn(self, batch: ScheduledBatch, verdict: Verdict, seconds: float) -> None:
        pass

    def stop(self, request: Request) -> None:
        self.num_followers -= request.speculation.return_steps


class Drafting:
    """Between the planner, which says how much is worth drafting, and the drafters."""

    def __init__(self, drafters: Drafters, planner: DraftPlanner, metrics: EngineMetrics) -> None:
        self.drafters, self.planner, self.metrics = drafters, planner, metrics
        self.idle = IdleSteps([guard for guard in drafters.guards if guard.observes_every_step], metrics)
        self.num_followers = 0
        """Requests, and traces, that are told why fewer draft tokens were verified than could have been."""
        self.wanted: dict[str, int] = {}
        """Draft tokens that the planner wanted at most for each request in the step that comes, for followers."""

    @property
    def guards(self) -> Sequence[GuardedDrafter]:
        return self.drafters.guards

    def start(self, request: Request) -> None:
        self.num_followers += request.speculation.return_steps
        self.idle.end(self.planner)
        for guard in self.guards:
            guard.start(request)

    def stop(self, request: Request) -> None:
        self.num_followers -= request.speculation.return_steps
        self.wanted.pop(request.id, None)
        self.idle.end(self.planner)
        self.idle.left = 0
        self.drafters.stop(request)

    def draft(self, batch: ScheduledBatch, output: ForwardOutput, verdict: Verdict, seconds: float) -> None:
        """Give each running request its draft for the next step. `seconds`: what this step took."""
        if self.idle.go_on(batch):
            self.idle.add(batch, output, verdict)
            return
        self.idle.end(self.planner)
        began, recording = time.perf_counter(), self.metrics.graph_recording_seconds
        self.drafters.observe(batch, verdict, seconds)
        running = running_spans(batch, verdict)
        requests = [batch.spans[i].request for i in running]
        planned = self.planner.limits(requests)
        if self.num_followers:
            self.wanted |= {request.id: limit for request, limit in zip(requests, planned, strict=True)}
        if not any(planned):
            for guard in self.guards:
                guard.observe(batch, output, verdict)
            if batch.num_rows == len(batch.spans):
                self.idle.begin(len(running), self.planner)
            return
        limits = [0] * len(batch.spans)
        for i, limit in zip(running, planned, strict=True):
            limits[i] = limit
        drafts = self.drafters.propose(batch, output, verdict, limits)
        for i, request in zip(running, requests, strict=True):
            draft = drafts[i]
            assign(request, "draft", None if draft is None else depth_first(draft))
        if batch.only_decodes:  # a draft model may read prompts
            taken = time.perf_counter() - began - self.drafters.seconds_of_others
            taken -= self.metrics.graph_recording_seconds - recording
            num_requests = len(planned) - planned.count(0)
            self.planner.observe_drafting(taken, num_requests, self.drafters.pass_seconds)

    def learn(self, batch: ScheduledBatch, verdict: Verdict, seconds: float) -> None:
        """Let the planner learn from the step, unless it is idle."""
        if self.idle.batch is None:
            self.planner.learn(batch, verdict, seconds)
        else:
            self.idle.seconds.append(seconds)


def running_spans(batch: ScheduledBatch, verdict: Verdict) -> list[int]:
    """The places of requests that got tokens and go on. Not by the verdict alone: committing has ended a request whose
    processor failed."""
    return [
        i
        for i, (span, decided) in enumerate(zip(batch.spans, verdict.spans, strict=True))
        if decided.tokens and span.request.finish_reason is None
    ]
