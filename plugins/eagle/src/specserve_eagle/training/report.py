"""What a training run tells while it runs, on standard error: a bar in a terminal, lines in a file.

A line is written at a steady interval, whatever the run is at: preparing is told with what is left of it, and one long
step as well. Knows nothing about training but the numbers that it is given.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, TextIO

from specserve_eagle.training.bar import Bar, clock, length_shown, seconds_left

if TYPE_CHECKING:
    from types import TracebackType

    from specserve_eagle.training.loop import Progress

LOG_SECONDS = 15.0
FEW_STEPS = 200
"""With fewer a head has learnt next to nothing."""


class Report:
    """Stages and steps as lines, each written at once. `began`: when the run started, of `time.monotonic`."""

    def __init__(
        self, head: str, began: float, minutes: float | None, out: TextIO, interval: float = LOG_SECONDS
    ) -> None:
        self.head, self.began, self.minutes, self.out = head, began, minutes, out
        self._interval = interval
        self._stage = self._status = ""
        self._since = began
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="training-report", daemon=True)

    def stage(self, what: str) -> None:
        """Something begins: a line at once."""
        self._since, self._stage, self._status = time.monotonic(), what, what
        self.line(what)

    def part(self, done: float, total: float) -> None:
        """How far the stage that runs is."""
        left = (time.monotonic() - self._since) * (total - done) / done if done else 0.0
        self._status = f"{self._stage}: {100 * done / max(total, 1):.0f} %, about {clock(left)} left"

    def show(self, progress: Progress, spent: float) -> None:
        """After every step; the first one has a line of its own, with how many there will be. A resumed run is told of
        as a whole."""
        if self._status == self._stage:
            self.line(first_step(progress, self.minutes))
        self._status = (
            f"step {progress.step}, {progress.step_seconds:.2f} s each, {100 * min(spent, 1.0):.0f} % of the budget, "
            f"loss {progress.loss:.3f}, acceptance length {length_shown(progress):.2f}, "
            f"about {clock(seconds_left(progress, spent))} left"
        )

    def line(self, text: str) -> None:
        print(f"{self.head} [{clock(time.monotonic() - self.began)}] {text}", file=self.out, flush=True)

    def _beat(self) -> None:
        while not self._ended.wait(self._interval):
            self.line(self._status)

    def __enter__(self) -> Report:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()


class TerminalReport(Report):
    """Stages as lines, steps as a bar; nothing is written in between."""

    def __init__(self, head: str, began: float, minutes: float | None, out: TextIO) -> None:
        super().__init__(head, began, minutes, out)
        self._bar = Bar(head)

    def part(self, done: float, total: float) -> None:
        pass

    def show(self, progress: Progress, spent: float) -> None:
        self._bar.show(progress, spent)

    def __enter__(self) -> TerminalReport:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()


def make_report(head: str, began: float, minutes: float | None) -> Report:
    kind = TerminalReport if sys.stderr.isatty() else Report
    return kind(head, began, minutes, sys.stderr)


def first_step(progress: Progress, minutes: float | None) -> str:
    """What the first step, of a resumed run the first after it, says of the whole run."""
    seconds = progress.last_seconds
    told = f"the first step took {seconds:.2f} s"
    if minutes is None or seconds <= 0:
        return told
    steps = progress.step + int(max(60 * minutes - progress.seconds, 0.0) / seconds)
    few = " Few: give more --minutes, or a smaller --length, --batch or --unroll." if steps < FEW_STEPS else ""
    return f"{told}: about {steps} in {minutes:g} minutes.{few}"
