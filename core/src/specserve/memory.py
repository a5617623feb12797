"""How the process uses memory: glibc keeps freed blocks, and the KV cache lies in huge pages."""

from __future__ import annotations

import ctypes
import math
import mmap
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch

from specserve.host_memory import HUGE_PAGE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
MEBIBYTE = 2**20
ADVICE = getattr(mmap, "MADV_HUGEPAGE", None)
"""None where the system knows no such advice, as macOS: its own pages serve."""


def keep_freed_memory() -> None:
    """Have glibc keep freed blocks instead of returning them to the system.

    Each step frees and allocates the same tens of megabytes (gathered keys and values); by default glibc unmaps
    them and the kernel zeroes them page by page in the next step, which cost a third of the time at 32 requests.
    Other C libraries are left alone.
    """
    mallopt = of_glibc("mallopt")
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 1024 * MEBIBYTE)
        mallopt(M_TRIM_THRESHOLD, 2047 * MEBIBYTE)
        mallopt(M_TOP_PAD, 64 * MEBIBYTE)


def return_freed_memory() -> None:
    """Have glibc return to the system what is free now: what loading needed, and steps do not."""
    trim = of_glibc("malloc_trim")
    if trim is not None:
        trim(0)


def of_glibc(name: str) -> Any:
    """Its function; None where the system has another C library."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform.startswith("linux") else None


def zeros_in_huge_pages(areas: Sequence[int], shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros [*areas, *shape], in pages that the system allocates when they are first written: huge pages where it has
    them, and each area begins with one.

    A decode step reads the whole KV cache; with pages of 4 KiB, every sixteenth token of a small model starts with a
    page-table walk, and hardware prefetch ends at the page. A processor knows few huge pages at a time: where areas
    begin within pages, a step touches up to twice as many. To write zeros at start-up would take seconds per GB.
    """
    if device.type == "cpu":
        size, count = math.prod(shape) * dtype.itemsize, math.prod(areas)
        whole = size // HUGE_PAGE * HUGE_PAGE
        stride = -(-size // HUGE_PAGE) * HUGE_PAGE if whole else size
        try:
            memory = mmap.mmap(-1, count * stride + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError):
            pass  # not enough memory: torch raises its own error below
        else:
            bytes_ = torch.frombuffer(memory, dtype=torch.uint8)
            begin = -bytes_.data_ptr() % HUGE_PAGE
            if whole and ADVICE is not None:  # what is behind the last huge page of an area takes small ones
                for area in range(count):
                    with suppress(OSError):  # only advice, which kernels without huge pages refuse
                        memory.madvise(ADVICE, begin + area * stride, whole)
            numbers = bytes_[begin : begin + count * stride].view(dtype).view(count, stride // dtype.itemsize)
            return numbers[:, : math.prod(shape)].view(*areas, *shape)
    return torch.zeros(*areas, *shape, dtype=dtype, device=device)
