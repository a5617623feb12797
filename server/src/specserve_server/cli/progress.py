"""The progress of start-up on standard error: one line that is overwritten on a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from specserve.announcements import announce
from specserve_server.load_progress import LoadProgress

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve_server.load_progress import Stage

SECONDS_BETWEEN_LINES = 5.0


def shown_progress(*, lines: bool = False) -> LoadProgress:
    """`lines`: also on a terminal, as a log wants them."""
    return LoadProgress(ProgressLines() if lines or not sys.stderr.isatty() else overwrite)


class ProgressLines:
    """A line when a stage begins, when it has ended, and every few seconds in between."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._name = ""
        self._told = 0.0

    def __call__(self, stage: Stage) -> None:
        now = self._clock()
        if stage.name != self._name or stage.is_done or now - self._told > SECONDS_BETWEEN_LINES - 0.1:
            self._name, self._told = stage.name, now
            announce(str(stage))


def overwrite(stage: Stage) -> None:
    end = "\n" if stage.is_done or not stage.total else ""
    print(f"\r\x1b[Kspecserve: {stage}", end=end, file=sys.stderr, flush=True)
