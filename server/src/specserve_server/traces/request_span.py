"""The span of one HTTP request that generates, by OpenTelemetry's conventions for HTTP servers and generative AI.

It has no text of a client or a model, and no message of an error, which may quote one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry import propagate
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from specserve_server.generation.usage import usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web
    from multidict import CIMultiDictProxy
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

    from specserve_server.state.request_record import Failure, Generation, RequestRecord
    from specserve_server.traces.wall_clock import WallClock

    Attributes = Mapping[str, str | int | float | bool]

PROPAGATOR = TraceContextTextMapPropagator()
PROVIDER = "specserve"
OUTPUT_TYPES = {"json_object": "json", "json_schema": "json"}


class HeaderGetter(Getter["CIMultiDictProxy[str]"]):
    """A header that stands several times is one whose values are joined: a second `traceparent` makes it malformed, as
    W3C Trace Context asks."""

    def get(self, carrier: CIMultiDictProxy[str], key: str) -> list[str] | None:
        values = carrier.getall(key, [])
        return [",".join(values)] if values else None

    def keys(self, carrier: CIMultiDictProxy[str]) -> list[str]:
        return list(carrier)


HEADERS = HeaderGetter()


class RequestSpan:
    """Made by `begin`. Implements `specserve_server.traces.traces.Operation`."""

    def __init__(self, span: Span, clock: WallClock, operation: str) -> None:
        self.span, self.clock, self.operation = span, clock, operation

    @classmethod
    def begin(cls, tracer: Tracer, clock: WallClock, request: web.Request, operation: str, route: str) -> RequestSpan:
        """Below the client's span, where its headers name one. Samplers see these attributes."""
        attributes = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": PROVIDER,
            "http.request.method": request.method,
            "http.route": route,
            "url.path": request.rel_url.raw_path,
            "url.scheme": request.scheme,
        }
        parent = context_of(request.headers)
        span = tracer.start_span(operation, parent, SpanKind.SERVER, attributes, start_time=clock.now())
        return cls(span, clock, operation)

    @property
    def headers(self) -> dict[str, str]:
        found: dict[str, str] = {}
        if self.span.is_recording():
            PROPAGATOR.inject(found, set_span_in_context(self.span))
        return found

    def end(self, record: RequestRecord, status: int | None) -> None:
        if record.is_passed_on or not self.span.is_recording():
            return
        self.span.set_attribute("specserve.http.request_id", record.id)
        if status is not None:
            self.span.set_attribute("http.response.status_code", status)
        if record.generation is not None:
            self.span.update_name(f"{self.operation} {record.generation.model}")
            self.span.set_attributes(generation_attributes(record.generation))
            self.span.set_attribute("gen_ai.response.finish_reasons", finish_reasons(record.generation, record.failure))
        if record.failure is not None:
            self.fail(record.failure)
        elif has_left(record, status):
            self.span.set_attribute("specserve.client_disconnected", True)
        self.span.end(self.clock.now())

    def fail(self, failure: Failure) -> None:
        """What is the client's fault is no error of the server's span."""
        self.span.set_attribute("error.type", failure.code)
        if failure.status >= 500:
            self.span.add_event("exception", {"exception.type": failure.exception}, timestamp=self.clock.now())
            self.span.set_status(Status(StatusCode.ERROR))


def context_of(headers: CIMultiDictProxy[str]) -> Context:
    """The client's span, as the propagators of OTEL_PROPAGATORS read it. Where one of them raises, as that of baggage
    does for bytes that are not UTF-8, W3C Trace Context alone."""
    try:
        return propagate.extract(headers, getter=HEADERS)
    except Exception:
        return PROPAGATOR.extract(headers, getter=HEADERS)


def has_left(record: RequestRecord, status: int | None) -> bool:
    """Before its answer was complete; of a stream the status was sent by then."""
    generation = record.generation
    return status is None or (
        generation is not None and any(choice.finish_reason is None for choice in generation.choices)
    )


def finish_reasons(generation: Generation, failure: Failure | None) -> list[str]:
    unfinished = "abort" if failure is None else "error"
    return [choice.finish_reason or unfinished for choice in generation.choices]


def generation_attributes(generation: Generation) -> Attributes:
    """OTLP has integers of 64 bits; what is larger was refused before."""
    first = generation.choices[0].request
    params, counts = first.params, usage(generation.choices, generation.num_choices)
    found: dict[str, str | int | float | bool] = {
        "gen_ai.request.model": generation.model,
        "gen_ai.response.model": generation.model,
        "gen_ai.response.id": generation.id,
        "gen_ai.request.max_tokens": params.max_tokens,
        "gen_ai.request.temperature": params.temperature,
        "gen_ai.request.top_p": params.top_p,
        "gen_ai.request.frequency_penalty": params.frequency_penalty,
        "gen_ai.request.presence_penalty": params.presence_penalty,
        "gen_ai.request.stream": generation.is_stream,
        "gen_ai.usage.input_tokens": counts.prompt_tokens,
        "gen_ai.usage.output_tokens": counts.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": counts.prompt_tokens_details.cached_tokens,
    }
    if params.top_k:
        found["gen_ai.request.top_k"] = params.top_k
    if generation.num_choices != 1:
        found["gen_ai.request.choice.count"] = generation.num_choices
    if params.seed is not None:
        found["gen_ai.request.seed"] = params.seed
    if params.structured_output is not None:
        found["gen_ai.output.type"] = OUTPUT_TYPES.get(params.structured_output.kind, "text")
    return found
