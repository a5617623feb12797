"""Follows the drafts of every request: what was proposed and by whom, what was verified and accepted, and why not.

An observer, and a planner around the engine's own that keeps what this one wanted. Changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve import tracing
from specserve.engine.drafting import Drafting
from specserve.guards.observer import GuardedObserver
from specserve.protocols import DraftPlanner

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from specserve.batch.batch import ScheduledBatch
    from specserve.batch.request import Request
    from specserve.batch.span import ScheduledSpan
    from specserve.engine.engine import Engine
    from specserve.protocols import Metric
    from specserve.types import Draft, SpanVerdict, Verdict


class DraftStep(NamedTuple):
    """One request in one step. Numbers are of tokens; `context`: those before the step's first row."""

    step: int
    request: str
    context: int
    rows: int
    proposed: int
    drafters: str
    verified: int
    accepted: int
    tokens: int
    why: str
    """Why fewer were verified than could be; empty where none were left out."""


class LimitsKeeper(DraftPlanner):
    """A planner, as drafting uses it, and what it last wanted for each request."""

    def __init__(self, planner: DraftPlanner) -> None:
        self.planner = planner
        self.wanted: dict[str, int] = {}
        """For the step that comes: drafters propose after a step is observed."""

    def limits(self, requests: Sequence[Request]) -> list[int]:
        limits = self.planner.limits(requests)
        self.wanted = {request.id: limit for request, limit in zip(requests, limits, strict=True)}
        return limits

    def choose(self, requests: Sequence[Request], budget: int, base_rows: int) -> Sequence[Draft | int | None]:
        return self.planner.choose(requests, budget, base_rows)

    def learn(self, batch: ScheduledBatch, verdict: Verdict, seconds: float) -> None:
        self.planner.learn(batch, verdict, seconds)

    def observe_drafting(self, seconds: float, num_requests: int, pass_seconds: float) -> None:
        self.planner.observe_drafting(seconds, num_requests, pass_seconds)

    def idle_steps(self) -> int:
        return self.planner.idle_steps()

    def observe_idle(self, batch: ScheduledBatch, seconds: Sequence[float]) -> None:
        self.planner.observe_idle(batch, seconds)


class DraftTrace:
    """`show` gets every DraftStep, in the thread that steps the engine."""

    def __init__(self, show: Callable[[DraftStep], object], keeper: LimitsKeeper | None) -> None:
        self.show, self.keeper = show, keeper
        self.step = 0

    def observe(self, batch: ScheduledBatch, verdict: Verdict) -> None:
        for span, decided in zip(batch.spans, verdict.spans, strict=True):
            self.show(self.draft_step(span, decided))
        self.step += 1

    def draft_step(self, span: ScheduledSpan, decided: SpanVerdict) -> DraftStep:
        proposed = 0 if span.proposed is None else len(span.proposed.tokens)
        return DraftStep(
            self.step,
            span.request.id,
            span.start,
            span.length,
            proposed,
            names_of(span),
            span.drafted,
            len(decided.path),
            len(decided.tokens),
            self.why(span, proposed),
        )

    def why(self, span: ScheduledSpan, proposed: int) -> str:
        if not span.scored or span.known > 1:
            return "prompt"
        if proposed:
            return (
                ""
                if span.drafted == proposed
                else "the planner kept fewer"
                if span.drafted
                else "the planner kept none"
            )
        if self.keeper is None:
            return "no drafter"
        return "no proposal" if self.keeper.wanted.get(span.request.id, 0) else "the planner wanted none"

    def metrics(self) -> list[Metric]:
        return []


def names_of(span: ScheduledSpan) -> str:
    draft = span.proposed
    if draft is None:
        return ""
    return "+".join(dict.fromkeys(draft.sources)) if draft.sources else draft.source


def trace_drafts(engine: Engine, show: Callable[[DraftStep], object]) -> None:
    """Show every step of this engine from now on."""
    keeper = None
    if isinstance(engine.drafting, Drafting):
        keeper = LimitsKeeper(engine.drafting.planner)
        engine.drafting.planner = keeper
    observers = [
        *engine.parts.guarded_observers,
        GuardedObserver("core", DraftTrace(show, keeper), engine.metrics.faults),
    ]
    engine.parts = engine.parts._replace(guarded_observers=observers)


def trace_if_asked(engine: Engine) -> None:
    """Of `--trace drafts`."""
    if tracing.DRAFTS.is_on:
        trace_drafts(engine, lambda step: tracing.DRAFTS.event(**step._asdict()))
