"""The host's processor cores. No torch."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Cores that this process may run on, where the system reports them; else all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
