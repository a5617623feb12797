"""The OpenTelemetry SDK of one process: what it sends, to where, and how it ends.

Spans are sent in batches, by a thread of the SDK. Its queue is bounded: what a collector does not take is dropped.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from specserve import __version__
from specserve_server.traces.exporter import ToldOnce

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.trace import Tracer

TRACES_PATH = "/v1/traces"
CLOSE_SECONDS = 2.0
"""How long sending may take at the end, before what is left is dropped."""
SCOPE = "specserve"


class Provider(NamedTuple):
    tracer: Tracer
    sdk: TracerProvider

    @classmethod
    def to(cls, endpoint: str | None) -> Provider:
        """None: where the environment says, which says all else, too."""
        url = None if endpoint is None else with_path(endpoint)
        return cls.of(BatchSpanProcessor(ToldOnce(OTLPSpanExporter(endpoint=url))))

    @classmethod
    def of(cls, processor: SpanProcessor) -> Provider:
        sdk = TracerProvider(resource=resource(), shutdown_on_exit=False)
        sdk.add_span_processor(processor)
        return cls(sdk.get_tracer(SCOPE, __version__), sdk)

    def close(self) -> None:
        """A try to send that has begun may take longer than is waited: it ends with the process."""
        ending = threading.Thread(target=self.sdk.shutdown, name="specserve-traces", daemon=True)
        ending.start()
        ending.join(CLOSE_SECONDS)


def with_path(endpoint: str) -> str:
    """A URL without a path gets the one that OTLP has for traces."""
    return endpoint.rstrip("/") + TRACES_PATH if urlsplit(endpoint).path in ("", "/") else endpoint


def resource() -> Resource:
    """What the environment says of the service; its name is specserve where it says none."""
    found = Resource({SERVICE_VERSION: __version__}).merge(Resource.create())
    if str(found.attributes[SERVICE_NAME]).startswith("unknown_service"):
        found = found.merge(Resource({SERVICE_NAME: "specserve"}))
    return found
