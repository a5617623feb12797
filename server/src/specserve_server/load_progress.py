"""How far the loading of an engine is: the stage, and what of it is done.

The loading thread calls it; /health and the lines on standard error read it. Knows nothing about what is loaded.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from specserve.load_progress import BYTE_STAGES

if TYPE_CHECKING:
    from collections.abc import Callable

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class Stage(NamedTuple):
    name: str
    done: int
    total: int
    seconds: float
    """Since the stage began."""

    @property
    def is_done(self) -> bool:
        return 0 < self.total <= self.done

    def __str__(self) -> str:
        """`reading weights, 512.0 MiB of 1.2 GiB, 3.1 s`"""
        counts = [f"{self.quantity(self.done)} of {self.quantity(self.total)}"] if self.total else []
        seconds = [f"{self.seconds:.1f} s"] if self.seconds >= 0.05 else []
        return ", ".join([self.name, *counts, *seconds])

    def quantity(self, count: int) -> str:
        return byte_text(count) if self.name in BYTE_STAGES else str(count)


class Progress(msgspec.Struct, kw_only=True):
    """`done` and `total`: of the stage, where something of it can be counted. `seconds`: since the start."""

    stage: str
    done: int | UnsetType = UNSET
    total: int | UnsetType = UNSET
    unit: Literal["bytes", "items"] | UnsetType = UNSET
    seconds: float


def not_told(stage: Stage) -> None:
    """What hears of a `LoadProgress` that is only read."""


class LoadProgress:
    """A `ProgressCallback`. `tell` gets every change, in the thread that calls."""

    def __init__(
        self, tell: Callable[[Stage], None] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tell, self._clock = tell or not_told, clock
        self._began = self._stage_began = clock()
        self._stage = ("starting", 0, 0)

    def __call__(self, name: str, done: int, total: int) -> None:
        if name != self._stage[0]:
            self._stage_began = self._clock()
        self._stage = (name, done, total)
        self._tell(self.stage)

    def repeat(self) -> None:
        """Tell the stage again: nothing of it may have been counted for long."""
        self._tell(self.stage)

    @property
    def stage(self) -> Stage:
        return Stage(*self._stage, self._clock() - self._stage_began)

    @property
    def seconds(self) -> float:
        """Since the start."""
        return self._clock() - self._began

    def describe(self) -> Progress:
        """For /health."""
        stage = self.stage
        told = Progress(stage=stage.name, seconds=round(self.seconds, 1))
        if stage.total:
            told.done, told.total = stage.done, stage.total
            told.unit = "bytes" if stage.name in BYTE_STAGES else "items"
        return told


def byte_text(count: float) -> str:
    """`1.2 GiB`"""
    power = 0
    while count >= 1024 and power + 1 < len(UNITS):
        count, power = count / 1024, power + 1
    return f"{count:.1f} {UNITS[power]}" if power else f"{count:.0f} B"
