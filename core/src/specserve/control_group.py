"""Limits of the control group that the process runs in, of versions 1 and 2.

A limit of any group around it holds, too: each function gives the strictest, or None where there is none. `root`: where
the system's files are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.system_files import SYSTEM, read_system_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MOUNT = "sys/fs/cgroup"
UNLIMITED = 2**60
"""Version 1 says so with a number near 2**63."""
LIMITS = {"memory.max": "memory.current", "memory.limit_in_bytes": "memory.usage_in_bytes"}
"""The memory limit, and the memory in use; versions 2 and 1."""
RECLAIMED = ("inactive_file", "total_inactive_file")
"""Used memory that the system takes back when it is needed: pages of files that nobody reads."""


def cpu_quota(root: Path = SYSTEM) -> float | None:
    """Cores' worth of time that the process gets."""
    quotas = []
    for folder in folders(root, "cpu"):
        quota, _, period = read_system_file(folder / "cpu.max").partition(" ")
        if not quota:
            quota, period = (
                read_system_file(folder / "cpu.cfs_quota_us"),
                read_system_file(folder / "cpu.cfs_period_us"),
            )
        if quota.isdecimal() and period.isdecimal() and int(period):
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def memory_limit(root: Path = SYSTEM) -> int | None:
    """Bytes."""
    return min((limit for _, _, limit in memory_limits(root)), default=None)


def memory_room(root: Path = SYSTEM) -> int | None:
    """Bytes that the process may still allocate."""
    return min((limit - used_memory(folder, usage) for folder, usage, limit in memory_limits(root)), default=None)


def memory_limits(root: Path) -> Iterator[tuple[Path, str, int]]:
    """Folder, name of the file with the usage, limit."""
    for folder in folders(root, "memory"):
        for file, usage in LIMITS.items():
            text = read_system_file(folder / file)
            if text.isdecimal() and int(text) < UNLIMITED:
                yield folder, usage, int(text)


def used_memory(folder: Path, usage: str) -> int:
    text = read_system_file(folder / usage)
    counts = dict(line.split(" ", 1) for line in read_system_file(folder / "memory.stat").splitlines() if " " in line)
    reclaimed = next((counts[name] for name in reversed(RECLAIMED) if name in counts), "0")
    return max(int(text) - int(reclaimed), 0) if text.isdecimal() and reclaimed.isdecimal() else 0


def folders(root: Path, controller: str) -> Iterator[Path]:
    """From the group to the outermost one. In a container the path may be one that only the host knows."""
    for line in read_system_file(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        mount = root / MOUNT / controller if controllers else root / MOUNT
        parts = [part for part in path.split("/") if part]
        for depth in range(len(parts), -1, -1):
            yield mount.joinpath(*parts[:depth])
