"""A run of many trials: progress, failures made small and saved, coverage at the end."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from fuzz.coverage import expected_here, missed, table
from fuzz.drawing import plan_of
from fuzz.minimise import minimise
from fuzz.plans import describe, save
from fuzz.trial import run_trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from fuzz.trial import Outcome

PROGRESS_SECONDS = 30
MINIMISE_SECONDS = 60
AGAIN_SECONDS = 15
"""For a failure of a kind that was made small before: it may have another cause."""
MOST_FAILURES = 20
RUNNING = "running.json"
"""The plan of the trial that runs: what is left behind where a trial takes the process with it."""


class Found(NamedTuple):
    number: int
    smallest: Outcome
    file: Path


class Campaign:
    """`folder` takes the cases; `say` the lines for a person."""

    def __init__(
        self,
        seed: int,
        folder: Path,
        *,
        say: Callable[[str], object] = print,
        minimise_seconds: float = MINIMISE_SECONDS,
    ) -> None:
        self.seed, self.folder, self.say, self.minimise_seconds = seed, folder, say, minimise_seconds
        self.kinds: Counter[str] = Counter()
        self.figures: Counter[str] = Counter()
        self.found: list[Found] = []
        self.trials = 0
        self.began = self.told = time.monotonic()

    def run(self, numbers: Iterable[int], seconds: float = float("inf")) -> None:
        for number in numbers:
            if time.monotonic() - self.began > seconds or len(self.found) == MOST_FAILURES:
                break
            self.trial(number)
            if time.monotonic() - self.told > PROGRESS_SECONDS:
                self.told = time.monotonic()
                self.say(self.progress())

    def trial(self, number: int) -> None:
        plan = plan_of(self.seed, number)
        running = save(plan, self.folder / RUNNING)
        outcome = run_trial(plan)
        running.unlink()
        self.trials += 1
        self.kinds.update(outcome.kinds)
        self.figures += outcome.figures
        if outcome.failure is not None:
            self.keep(number, outcome)

    def keep(self, number: int, outcome: Outcome) -> None:
        """Make the failure small and save it."""
        self.say(f"FAILED: trial {number}, {describe(outcome.plan)}\n  {first_line(outcome.failure)}")
        known = {found.smallest.failure.kind for found in self.found if found.smallest.failure}
        is_new = outcome.failure is not None and outcome.failure.kind not in known
        outcome = minimise(outcome, self.minimise_seconds if is_new else min(self.minimise_seconds, AGAIN_SECONDS))
        self.say(f"  smallest: {describe(outcome.plan)}\n  {outcome.failure}")
        file = save(outcome.plan, self.folder / f"seed-{self.seed}-trial-{number}.json")
        self.say(f"  again with: make fuzz CASE={file}")
        self.found.append(Found(number, outcome, file))

    def progress(self) -> str:
        seconds = time.monotonic() - self.began
        figures = ", ".join(f"{key} {count}" for key, count in sorted(self.figures.items()))
        return f"{seconds:.0f} s, {self.trials} trials, {len(self.found)} failures: {figures}"

    def passed(self) -> bool:
        """Says what was reached and what was not. True where nothing failed and enough was reached."""
        expected = expected_here()
        unreached = missed(self.kinds, self.trials - len(self.found), expected)
        self.say(f"trials by kind:\n{table(self.kinds, {*expected, *self.kinds})}")
        self.say(f"seed {self.seed}: {self.progress()}")
        if unreached:
            self.say(f"FAILED: in that many trials these should have been reached: {', '.join(unreached)}")
        return not self.found and not unreached


def first_line(failure: object) -> str:
    return str(failure).partition("\n")[0]
