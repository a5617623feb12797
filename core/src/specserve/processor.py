"""Which processor this machine has."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from specserve.sysctl import sysctl_text
from specserve.system_files import SYSTEM, read_system_file

if TYPE_CHECKING:
    from pathlib import Path


def processor_name(root: Path = SYSTEM) -> str:
    """As the operating system states it; the architecture where it states no more."""
    lines = read_system_file(root / "proc/cpuinfo").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else sysctl_text("machdep.cpu.brand_string") or platform.processor() or platform.machine()
