"""The sizes that steps are padded to. Few buckets waste rows, many take time and memory to record."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

STEPS_PER_DOUBLING = 4
"""Row buckets from 8 on: a step is padded by a quarter at most."""
SMALLEST = (1, 2, 4, 8)


class Buckets:
    """Ascending sizes."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = tuple(sorted(set(sizes)))

    @property
    def largest(self) -> int:
        return self.sizes[-1]

    def holding(self, count: int) -> int | None:
        """The smallest bucket that holds `count`; None if the largest is too small."""
        index = bisect_left(self.sizes, count)
        return self.sizes[index] if index < len(self.sizes) else None

    def exceeded(self, what: str) -> str:
        """The reason if no bucket holds them."""
        return f"more {what} than the largest bucket, {self.largest}"


def row_buckets(max_rows: int) -> Buckets:
    """1, 2, 4, 8, then four per doubling, up to what a step may have at most."""
    sizes, step = [*SMALLEST], 2
    while sizes[-1] < max_rows:
        for _ in range(STEPS_PER_DOUBLING):
            sizes.append(sizes[-1] + step)
        step *= 2
    return Buckets([*(size for size in sizes if size < max_rows), max_rows])


def doubling(maximum: int) -> Buckets:
    """1, 2, 4, ... up to `maximum`."""
    sizes = [1]
    while sizes[-1] < maximum:
        sizes.append(2 * sizes[-1])
    return Buckets([*sizes[:-1], maximum])
