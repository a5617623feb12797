"""Limits of the control group that the process runs in, of versions 1 and 2.

A limit of any group around it holds, too: each function gives the strictest, or None where there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specserve.doctor.case import Case

MOUNT = "sys/fs/cgroup"
UNLIMITED = 2**60
"""Version 1 says so with a number near 2**63."""


def cpu_quota(case: Case) -> float | None:
    """Cores' worth of time that the process gets."""
    quotas = []
    for folder in folders(case, "cpu"):
        quota, _, period = case.read(f"{folder}/cpu.max").strip().partition(" ")
        if not quota:
            quota = case.read(f"{folder}/cpu.cfs_quota_us").strip()
            period = case.read(f"{folder}/cpu.cfs_period_us").strip()
        if quota.isdecimal() and period.isdecimal() and int(period):
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def memory_limit(case: Case) -> int | None:
    """Bytes."""
    texts = [
        case.read(f"{folder}/{file}").strip()
        for folder in folders(case, "memory")
        for file in ("memory.max", "memory.limit_in_bytes")
    ]
    return min((int(text) for text in texts if text.isdecimal() and int(text) < UNLIMITED), default=None)


def folders(case: Case, controller: str) -> Iterator[str]:
    """From the group to the outermost one. In a container the path may be one that only the host knows."""
    for line in case.read("proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        mount = f"{MOUNT}/{controller}" if controllers else MOUNT
        parts = [part for part in path.split("/") if part]
        for depth in range(len(parts), -1, -1):
            yield "/".join((mount, *parts[:depth]))
