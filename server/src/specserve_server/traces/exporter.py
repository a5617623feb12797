"""An exporter that tells of a collector that cannot be reached once, and once that it can again.

The SDK's own would write a line for every batch and every try.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.sdk.trace import ReadableSpan

logger = logging.getLogger(__name__)
SDK_LOGGER = logging.getLogger(OTLPSpanExporter.__module__)


class KeptReason(logging.Filter):
    """What the SDK writes of a failure is kept for one line, and not written."""

    def __init__(self) -> None:
        super().__init__()
        self.text = "no reason is known"

    def filter(self, record: logging.LogRecord) -> bool:
        self.text = record.getMessage()
        return False


class ToldOnce(SpanExporter):
    """`export` is called in the thread of the span processor."""

    def __init__(self, exporter: SpanExporter) -> None:
        self.exporter, self.reason, self.num_lost = exporter, KeptReason(), 0
        SDK_LOGGER.addFilter(self.reason)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self.exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            if not self.num_lost:
                logger.warning("traces cannot be sent, and requests go on without: %s", self.reason.text)
            self.num_lost += len(spans)
        elif self.num_lost:
            logger.warning("traces are sent again; %d spans are lost", self.num_lost)
            self.num_lost = 0
        return result

    def shutdown(self) -> None:
        self.exporter.shutdown()
        SDK_LOGGER.removeFilter(self.reason)

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return self.exporter.force_flush(timeout_millis)
