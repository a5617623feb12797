"""Whether traces are sent: by the flag, or by the environment variables that OpenTelemetry defines.

What else these variables say (headers, sampling, batches, the service's name) is the SDK's business. Imports nothing of
OpenTelemetry.
"""

from __future__ import annotations

import os
from importlib import metadata
from typing import TYPE_CHECKING

from specserve.errors import ConfigError

if TYPE_CHECKING:
    from specserve_server.config import ServerConfig

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
"""The first that is set counts."""
PROTOCOL = "http/protobuf"
DISTRIBUTIONS = ("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http")


def traces_are_on(config: ServerConfig) -> bool:
    """Raises ConfigError where the flag asks for what cannot be done."""
    if config.otlp_traces_endpoint is None:
        return wanting_variable() is not None and obstacle() is None
    reason = obstacle()
    if reason is not None:
        raise ConfigError(f"--otlp-traces-endpoint: {reason}, or leave the flag out.")
    return True


def why_none_are_sent(config: ServerConfig) -> str | None:
    """A line for whoever set a variable that has no effect here. It is no error: variables may be set for a whole
    cluster."""
    variable, reason = wanting_variable(), obstacle()
    if config.otlp_traces_endpoint is not None or variable is None or reason is None:
        return None
    return f"{variable} is set, but no traces are sent: {reason}"


def wanting_variable() -> str | None:
    """The name of the variable that asks for traces, unless others switch them off."""
    is_disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if is_disabled or os.environ.get("OTEL_TRACES_EXPORTER") == "none":
        return None
    return first_set(ENDPOINTS)


def obstacle() -> str | None:
    """Why traces cannot be sent, and what to do."""
    for name in DISTRIBUTIONS:
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            return f"traces need the package {name}, which is not installed. Run pip install 'specserve[otel]'"
    variable = first_set(PROTOCOLS)
    if variable is not None and os.environ[variable] != PROTOCOL:
        got = os.environ[variable]
        return f"{variable} is {got!r}, and only {PROTOCOL} is served. Set it so, with a collector's HTTP port (4318)"
    return None


def first_set(names: tuple[str, ...]) -> str | None:
    """A variable that is empty counts as unset, as OpenTelemetry has it."""
    return next((name for name in names if os.environ.get(name)), None)
