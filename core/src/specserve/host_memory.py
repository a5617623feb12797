"""The host's memory: how much is free, and pages that the system allocates before they are written."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from pathlib import Path
from typing import NamedTuple

from specserve.control_group import memory_room
from specserve.process_limits import address_room
from specserve.sysctl import sysctl_number
from specserve.system_files import SYSTEM, read_system_file

HUGE_PAGE = 2 * 2**20
HUGE_PAGE_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
POPULATE_WRITE = 23
"""Linux's MADV_POPULATE_WRITE, from 5.14 on, which Python 3.11 has no name for."""
MACOS_PAGES = ("vm.page_free_count", "vm.page_pageable_external_count")
"""Pages that are free, and pages of files; the names are sysctl's."""


def allocate_pages(address: int, size: int) -> bool:
    """Has the system allocate what is not yet allocated of this memory, and leaves what is in it. False where it
    cannot: it is too old, or has no memory left. Address and size in whole pages of the system."""
    if not sys.platform.startswith("linux"):
        return False
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes, madvise.restype = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int), ctypes.c_int
    return bool(madvise(address, size, POPULATE_WRITE) == 0)


def has_huge_pages() -> bool | None:
    """Does the system give huge pages to memory that asks for them? None where it does not say."""
    setting = read_system_file(HUGE_PAGE_SETTING)
    return "[never]" not in setting if setting else None


class FreeMemory(NamedTuple):
    num_bytes: int
    bound: str
    """What allows no more: the system, its control group, or a limit of the process."""

    def __str__(self) -> str:
        return f"about {self.num_bytes} bytes are free ({self.bound})"


def free_pages_memory() -> int:
    """Bytes that memory which the process has already can get, when it is first written."""
    return physical_memory().num_bytes


def free_host_memory() -> FreeMemory:
    """What an allocation could get now."""
    room = address_room()
    return min([physical_memory(), *([] if room is None else [FreeMemory(*room)])])


def physical_memory() -> FreeMemory:
    """Free memory of the system, within the process's control group."""
    free = [FreeMemory(available_memory(), "of the system")]
    room = memory_room()
    if room is not None:
        free.append(FreeMemory(max(room, 0), "in this control group"))
    return min(free)


def resident_memory() -> int:
    """Bytes of this process that are in memory now; the most there ever were where the system tells only that."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def total_memory(root: Path = SYSTEM) -> int:
    """Bytes that the machine has."""
    told = memory_line("MemTotal", root)
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if told is None else told


def available_memory(root: Path = SYSTEM) -> int:
    """Bytes that the system could give: by Linux's own estimate; on macOS pages that are free or hold files, like
    Linux's; elsewhere half of all memory."""
    told = memory_line("MemAvailable", root)
    if told is not None:
        return told
    pages = [sysctl_number(name) for name in MACOS_PAGES]
    counts = [count for count in pages if count is not None]
    return sum(counts) * os.sysconf("SC_PAGE_SIZE") if len(counts) == len(pages) else total_memory(root) // 2


def memory_line(name: str, root: Path) -> int | None:
    """Bytes, of Linux's file; None where the system has no such line."""
    for line in read_system_file(root / "proc/meminfo").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return None
