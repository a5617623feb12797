"""How long the queue takes now: how many requests wait, and the pace at which they were scheduled lately.

The step thread observes; any thread may ask. Knows nothing about requests.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

WINDOW = 30.0
"""Seconds that count as lately."""
SPACING = 1.0
"""Seconds between two samples that are kept."""
LONGEST = 60
"""SDKs of OpenAI and Anthropic do not obey a longer `Retry-After`."""


class Sample(NamedTuple):
    at: float
    num_scheduled: int


class QueueWait:
    """`observe` is called after every step."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._samples: tuple[Sample, ...] = ()
        """The oldest first; empty while nobody waits. Replaced as a whole: another thread may read it."""

    def observe(self, num_waiting: int, num_scheduled: int) -> None:
        """`num_scheduled`: since the start, requests that were scheduled for the first time."""
        if not num_waiting:
            self._samples = ()
            return
        now = self._clock()
        if not self._samples or now - self._samples[-1].at >= SPACING:
            kept = [sample for sample in self._samples if now - sample.at < WINDOW]
            self._samples = (*kept, Sample(now, num_scheduled))

    def seconds(self, num_waiting: int, num_scheduled: int) -> int:
        """Until those that wait now have been scheduled, from 1 to `LONGEST`. Where none has been scheduled since the
        queue began, as long as that took again."""
        samples = self._samples
        if not samples:
            return 1
        passed = self._clock() - samples[0].at
        left = num_scheduled - samples[0].num_scheduled
        wait = passed * num_waiting / left if left > 0 else passed
        return max(1, math.ceil(min(wait, LONGEST)))
