"""A collector of traces: OTLP over HTTP, kept in memory, in a thread of its own."""

from __future__ import annotations

import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Thread
from typing import TYPE_CHECKING, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.trace.v1 import trace_pb2

PATIENCE = 60.0
SERVER, INTERNAL = 2, 1
"""Kinds of spans, as OTLP numbers them."""
UNSET, ERROR = 0, 2
"""Statuses likewise."""


class Event(NamedTuple):
    name: str
    at: int
    attributes: dict[str, object]


class Span(NamedTuple):
    """`begin` and `end`: nanoseconds since the epoch. Ids are in hexadecimal, `parent` is empty for a root."""

    name: str
    trace: str
    id: str
    parent: str
    state: str
    kind: int
    begin: int
    end: int
    status: int
    message: str
    attributes: dict[str, object]
    events: list[Event]
    resource: dict[str, object]


class Collector:
    """Made by a `with` block, which it listens in. `bodies`: all that was sent, as it came."""

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.bodies: list[bytes] = []
        self.spans: list[Span] = []
        self.arrived = Condition()

    def __enter__(self) -> Collector:
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler_for(self))
        self.thread = Thread(target=self.server.serve_forever, args=(0.02,), name="collector")
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def receive(self, path: str, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        with self.arrived:
            self.paths.add(path)
            self.bodies.append(body)
            self.spans += read_spans(request)
            self.arrived.notify_all()

    def of_trace(self, trace: str, count: int) -> list[Span]:
        """The spans of a trace, of which there are `count`, in the order in which they began."""
        until = time.monotonic() + PATIENCE
        with self.arrived:
            while len(found := [span for span in self.spans if span.trace == trace]) < count:
                assert self.arrived.wait(until - time.monotonic()), f"of {count} spans came only {found}"
        assert len(found) == count
        return sorted(found, key=lambda span: (span.begin, -span.end))


def handler_for(collector: Collector) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.receive(self.path, self.rfile.read(int(self.headers["Content-Length"])))
            body = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Not on standard error."""

    return Handler


def read_spans(request: ExportTraceServiceRequest) -> Iterator[Span]:
    for of_resource in request.resource_spans:
        resource = values(of_resource.resource.attributes)
        for of_scope in of_resource.scope_spans:
            yield from (read_span(span, resource) for span in of_scope.spans)


def read_span(span: trace_pb2.Span, resource: dict[str, object]) -> Span:
    return Span(
        name=span.name,
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        state=span.trace_state,
        kind=span.kind,
        begin=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        status=span.status.code,
        message=span.status.message,
        attributes=values(span.attributes),
        events=[Event(event.name, event.time_unix_nano, values(event.attributes)) for event in span.events],
        resource=resource,
    )


def values(attributes: list[KeyValue]) -> dict[str, object]:
    return {one.key: value_of(one.value) for one in attributes}


def value_of(value: AnyValue) -> object:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(one) for one in value.array_value.values]
    assert kind is not None
    found: object = getattr(value, kind)
    return found
