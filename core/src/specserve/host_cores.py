"""The host's processor cores. No torch."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from specserve.control_group import cpu_quota
from specserve.system_files import SYSTEM

if TYPE_CHECKING:
    from pathlib import Path


def usable_cores() -> int:
    return len(usable_core_numbers())


def usable_core_numbers() -> list[int]:
    """Cores that this process may run on, where the system tells; else all, as on macOS and in sandboxes that forbid
    the question."""
    if hasattr(os, "sched_getaffinity"):
        with suppress(OSError):
            return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def cores_with_time(root: Path = SYSTEM) -> int:
    """How many threads can compute at once: the usable cores, within the quota of the control group. The system stops
    all threads of a process for the rest of a period once they have used up its quota."""
    quota = cpu_quota(root)
    return usable_cores() if quota is None else min(usable_cores(), max(math.floor(quota), 1))
