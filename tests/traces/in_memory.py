"""Spans kept in memory, for tests in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from specserve_server.traces.provider import Provider
from specserve_server.traces.sent_traces import SentTraces

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

PARENT_TRACE, PARENT_SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{PARENT_TRACE}-{PARENT_SPAN}-01"


class KeptTraces(SentTraces):
    """Nothing is sent."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        super().__init__(Provider.of(SimpleSpanProcessor(self.exporter)))

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        """Those that have ended, in the order in which they did."""
        return self.exporter.get_finished_spans()

    def by_name(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.spans}
