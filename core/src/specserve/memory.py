"""How the process's memory is laid out: what becomes of freed blocks, and which memory lies in large pages."""

from __future__ import annotations

import ctypes
import mmap
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
MEBIBYTE = 2**20
LARGE_PAGE = 2 * MEBIBYTE
ADVICE = getattr(mmap, "MADV_HUGEPAGE", None)
"""None where the system has no such advice."""


def keep_freed_memory() -> None:
    """Have glibc keep freed blocks instead of returning them to the system.

    Each step frees and allocates the same tens of megabytes (gathered keys and values); by default glibc unmaps
    them and the kernel zeroes them page by page in the next step, which cost a third of the time at 32 requests.
    Other C libraries are left alone.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 1024 * MEBIBYTE)
        mallopt(M_TRIM_THRESHOLD, 2047 * MEBIBYTE)
        mallopt(M_TOP_PAD, 64 * MEBIBYTE)


def prefer_large_pages(tensor: Tensor) -> None:
    """Ask for large pages under a big tensor on the CPU, before it is first written.

    A decode step walks through the whole KV cache; with pages of 4 KiB every sixteenth token of a small model begins
    with a walk through page tables, and hardware prefetch ends there. Only advice: where it is refused nothing changes.
    """
    begin = -(-tensor.data_ptr() // LARGE_PAGE) * LARGE_PAGE
    size = tensor.data_ptr() + tensor.numel() * tensor.element_size() - begin
    if ADVICE is None or tensor.device.type != "cpu" or size < LARGE_PAGE:
        return
    madvise = getattr(ctypes.CDLL(None), "madvise", None)
    if madvise is not None:
        madvise(ctypes.c_void_p(begin), ctypes.c_size_t(size), ADVICE)
