"""Settings beside each other: what the rule of a sweep compares, and what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from specserve_bench.sweep.cells import Cell, Setting

    Rates = Mapping[Cell, float]
    """Output tokens per second of one setting. All settings have the same cells."""

TOLERANCE = 0.03


class Advice(NamedTuple):
    """What to use under one load alone."""

    cell: Cell
    setting: Setting
    rate: float
    best: Setting
    """The fastest; another one than `setting` where that has fewer drafters and is within the tolerance of it."""
    best_rate: float

    @property
    def lead(self) -> float:
        """How much faster the fastest is, as a share."""
        return self.best_rate / self.rate - 1


class Recommendation(NamedTuple):
    setting: Setting
    """For all loads together."""
    why: str
    """Sentences."""
    loads: Sequence[Advice]
    by_noise: bool
    """Whether another one might have been chosen if chance moved the medians less: more rounds may tell."""


class Compared(NamedTuple):
    """A setting beside no drafter."""

    setting: Setting
    rates: Rates
    mean: float
    """The geometric mean of its speed-ups over all cells."""
    lowest: float
    lowest_cell: Cell


class Tolerances(NamedTuple):
    """Leads below these count for nothing."""

    cells: Mapping[Cell, float]
    mean: float
    """Of means over all cells."""
