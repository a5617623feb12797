"""Traces as the configuration has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.errors import ConfigError
from specserve.faults import FAULTS, error_summary
from specserve_server.traces.traces import NO_TRACES, NoTraces
from specserve_server.traces.wanted import traces_are_on

if TYPE_CHECKING:
    from specserve_server.config import ServerConfig


def open_traces(config: ServerConfig) -> NoTraces:
    """Close them. Raises ConfigError where they cannot be sent."""
    if not traces_are_on(config):
        return NO_TRACES
    try:
        from specserve_server.traces.sent_traces import SentTraces  # OpenTelemetry: only where traces are on

        return SentTraces.to(config.otlp_traces_endpoint)
    except FAULTS as error:
        raise ConfigError(
            f"traces: OpenTelemetry {error_summary(error)}. Check the variables that begin with OTEL_, or run pip "
            f"install --upgrade 'specserve[otel]'."
        ) from error
