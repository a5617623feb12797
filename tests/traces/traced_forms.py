"""The forms of a server that sends traces, and how soon it does."""

from __future__ import annotations

FORMS = {
    "direct": ("--no-engine-process",),
    "engine process": ("--engine-process",),
    "three processes": ("--http-processes", "3"),
}
SOON = {"OTEL_BSP_SCHEDULE_DELAY": "50"}
"""Milliseconds for which spans wait before they are sent."""
