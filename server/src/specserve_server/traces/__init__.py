"""OpenTelemetry: a span of each HTTP request that generates, and spans of what the engine did for it.

The server's processes make the first, and the engine's process the others, from times that the engine noted. What
imports `opentelemetry` is itself imported only where traces are on: see `open_traces`.
"""
