"""What this machine does at most: bytes per second from memory, and operations per second. Measured by torch."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

BUFFER_BYTES = 1 << 28
"""More than caches hold."""
SIZE = 1024
"""Rows and columns of the product: large enough for the arithmetic to bound it."""
REPEATS = 5


class Machine(NamedTuple):
    threads: int
    bytes_per_second: float
    """Of reading."""
    flops: float
    """Per second, of matrix products in the model's dtype: a multiplication and an addition are two."""


def measure_machine(dtype: torch.dtype, threads: int) -> Machine:
    """The best of several attempts, after a first one that does not count. CPU only."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return Machine(threads, bandwidth(), product_flops(dtype))
    finally:
        torch.set_num_threads(before)


def bandwidth() -> float:
    buffer = torch.ones(BUFFER_BYTES // 4, dtype=torch.float32)
    return BUFFER_BYTES / best_seconds(buffer.sum)


def product_flops(dtype: torch.dtype) -> float:
    left, right = (torch.ones(SIZE, SIZE, dtype=dtype) for _ in range(2))
    return 2 * SIZE**3 / best_seconds(lambda: left @ right)


def best_seconds(action: Callable[[], object]) -> float:
    seconds = []
    for _ in range(REPEATS + 1):
        began = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - began)
    return min(seconds[1:])
