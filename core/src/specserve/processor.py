"""Which processor this machine has."""

from __future__ import annotations

import platform
from pathlib import Path


def processor_name() -> str:
    """As the operating system states it; the architecture where it states no more."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
