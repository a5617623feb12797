"""Spans of what the engine did for one of its requests: `queue`, `prefill` and `decode`, by the times that it noted.

They begin and end where the engine says, and are made once, when the request has ended. Knows no HTTP.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.trace import Tracer

    from specserve.batch.request import Request
    from specserve_server.traces.wall_clock import WallClock

    Attributes = Mapping[str, str | int | float]

PROPAGATOR = TraceContextTextMapPropagator()
PREEMPTED = "preempted"


class Phase(NamedTuple):
    """`begin` and `end`: seconds of time.monotonic."""

    name: str
    begin: float
    end: float
    attributes: Attributes


class EngineSpans:
    """`ended` is called in the step's thread."""

    def __init__(self, tracer: Tracer, clock: WallClock) -> None:
        self.tracer, self.clock = tracer, clock

    def ended(self, request: Request) -> None:
        """Nothing for requests that nobody traces, such as those that a sampler left out."""
        if not request.trace_headers:
            return
        parent = PROPAGATOR.extract(request.trace_headers)
        phases = phases_of(request, time.monotonic())
        for phase in phases:
            span = self.tracer.start_span(
                phase.name,
                parent,
                SpanKind.INTERNAL,
                {"specserve.request.id": request.id, **phase.attributes},
                start_time=self.clock.at(phase.begin),
            )
            for at in request.preempted_at:
                if phase.begin <= at < phase.end:
                    span.add_event(PREEMPTED, timestamp=self.clock.at(at))
            if phase is phases[-1]:
                span.set_attribute("specserve.finish_reason", str(request.finish_reason))
                if request.error_type is not None:
                    span.set_attribute("error.type", request.error_type)
                    span.set_status(Status(StatusCode.ERROR))
            span.end(self.clock.at(phase.end))


def phases_of(request: Request, now: float) -> list[Phase]:
    """Those that it reached. `now`: when the last one ended, if the request did not end by itself."""
    scheduled, first = request.first_scheduled, request.first_token
    if scheduled is None:
        return [Phase("queue", request.arrival, now, {})]
    queue = Phase("queue", request.arrival, scheduled, {})
    if first is None:
        return [queue, Phase("prefill", scheduled, now, prefill_attributes(request))]
    ended_itself = request.finish_reason in ("stop", "length")
    end = request.last_token if ended_itself and request.last_token is not None else now
    prefill = Phase("prefill", scheduled, first, prefill_attributes(request))
    return [queue, prefill, Phase("decode", first, end, decode_attributes(request))]


def prefill_attributes(request: Request) -> Attributes:
    return {
        "specserve.prefill.tokens": request.prompt_len,
        "specserve.prefill.cached_tokens": request.cached_tokens,
        "specserve.prefill.chunks": request.num_prompt_steps,
    }


def decode_attributes(request: Request) -> Attributes:
    """Of drafts only where some were verified."""
    found: dict[str, int | float] = {"specserve.decode.tokens": request.num_generated}
    steps, accepted = request.num_spec_steps, request.num_accepted_draft_tokens
    if steps:
        found["specserve.speculation.steps"] = steps
        found["specserve.speculation.drafted_tokens"] = request.num_draft_tokens
        found["specserve.speculation.accepted_tokens"] = accepted
        found["specserve.speculation.mean_acceptance_length"] = 1 + accepted / steps
    for name, counts in request.by_drafter.items():
        found[f"specserve.speculation.drafters.{name}.drafted_tokens"] = counts[0]
        found[f"specserve.speculation.drafters.{name}.accepted_tokens"] = counts[1]
    return found
