"""Follows the drafts of every request: what was proposed and by whom, what was verified and accepted, and why not.

An observer. The reasons are those of `specserve.engine.step_reports`. Changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve import tracing
from specserve.engine.step_reports import why_not_more
from specserve.guards.observer import GuardedObserver

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.batch.batch import ScheduledBatch
    from specserve.batch.span import ScheduledSpan
    from specserve.engine.drafting import Drafting, NoDraft
    from specserve.engine.engine import Engine
    from specserve.protocols import Metric
    from specserve.types import SpanVerdict, Verdict


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


class DraftTrace:
    """`show` gets every DraftStep, in the thread that steps the engine."""

    def __init__(self, show: Callable[[DraftStep], object], drafting: Drafting | NoDraft) -> None:
        self.show, self.drafting = show, drafting
        self.step = 0

    def observe(self, batch: ScheduledBatch, verdict: Verdict) -> None:
        for span, decided in zip(batch.spans, verdict.spans, strict=True):
            self.show(self.draft_step(span, decided))
        self.step += 1

    def draft_step(self, span: ScheduledSpan, decided: SpanVerdict) -> DraftStep:
        why = why_not_more(span, self.drafting)
        return DraftStep(
            self.step,
            span.request.id,
            span.start,
            span.length,
            0 if span.proposed is None else len(span.proposed.tokens),
            names_of(span),
            span.drafted,
            len(decided.path),
            len(decided.tokens),
            "" if why is None else why.text,
        )

    def metrics(self) -> list[Metric]:
        return []


def names_of(span: ScheduledSpan) -> str:
    draft = span.proposed
    if draft is None:
        return ""
    return "+".join(dict.fromkeys(draft.sources)) if draft.sources else draft.source


def trace_drafts(engine: Engine, show: Callable[[DraftStep], object]) -> None:
    """Show every step of this engine from now on."""
    engine.drafting.num_followers += 1
    trace = DraftTrace(show, engine.drafting)
    observers = [*engine.parts.guarded_observers, GuardedObserver("core", trace, engine.metrics.faults)]
    engine.parts = engine.parts._replace(guarded_observers=observers)


def trace_if_asked(engine: Engine) -> None:
    """Of `--trace drafts`."""
    if tracing.DRAFTS.is_on:
        trace_drafts(engine, lambda step: tracing.DRAFTS.event(**step._asdict()))
