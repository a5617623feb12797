"""Times of spans: nanoseconds since the epoch, of instants that were noted by the monotonic clock."""

from __future__ import annotations

import time

NS = 1_000_000_000
TRIES = 5
STEP = 1_000_000
"""Nanoseconds. A smaller difference between two measurements is their error, not a clock that was set."""


class WallClock:
    """All processes of a machine have one monotonic clock, so their spans are in order to a microsecond. Where somebody
    sets the other clock, later spans follow it."""

    def __init__(self) -> None:
        self.offset = measured_offset()

    def at(self, seconds: float) -> int:
        """`seconds`: of time.monotonic."""
        offset = time.time_ns() - time.monotonic_ns()
        if abs(offset - self.offset) > STEP:
            self.offset = measured_offset()
        return round(seconds * NS) + self.offset

    def now(self) -> int:
        return self.at(time.monotonic())


def measured_offset() -> int:
    """From the monotonic clock to the other one: of several measurements the one that was interrupted least."""
    found = []
    for _ in range(TRIES):
        before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        found.append((after - before, wall - (before + after) // 2))
    return min(found)[1]
