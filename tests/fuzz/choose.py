"""Chooses the trials of the short run in test_fuzz_short.py: quick ones that are of every kind together, mostly twice.

Run `python -m fuzz.choose SEED TRIALS` after a change to `drawing`, which makes other trials of the same numbers.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import torch

from fuzz.coverage import expected_here
from fuzz.drawing import plan_of
from fuzz.trial import run_trial

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fuzz.trial import Outcome

OFTEN_ENOUGH = 2
SLOWEST = 3.0
"""Seconds of a trial."""
BY_THE_CLOCK = (
    "accepted",
    "aborted",
    "ended by",
    "id used",
    "no room",
    "preempted",
    "prefix hit",
    "switched",
    "at fault",
)
"""Kinds that one run of a trial reaches and another may not, where times decide."""


class Candidate(NamedTuple):
    number: int
    seconds: float
    kinds: set[str]


def steady_kinds(outcome: Outcome) -> set[str]:
    """Those that every run of the trial reaches."""
    engine = outcome.plan.engine
    if engine.front == "sync" and (engine.planner != "own" or not engine.drafters):
        return outcome.kinds
    return {kind for kind in outcome.kinds if not any(word in kind for word in BY_THE_CLOCK)}


def candidates(seed: int, count: int) -> Iterable[Candidate]:
    for number in range(count):
        began = time.perf_counter()
        outcome = run_trial(plan_of(seed, number))
        seconds = time.perf_counter() - began
        if outcome.failure is None and seconds < SLOWEST:
            yield Candidate(number, seconds, steady_kinds(outcome))


def choose(given: Sequence[Candidate], wanted: set[str]) -> list[Candidate]:
    """Greedily the one that adds most per second (Chvatal, 1979)."""
    chosen: list[Candidate] = []
    counts: Counter[str] = Counter()

    def gain(candidate: Candidate) -> float:
        adds = sum(1.0 if not counts[kind] else 0.2 for kind in candidate.kinds & wanted if counts[kind] < OFTEN_ENOUGH)
        return adds / (0.1 + candidate.seconds)

    rest = list(given)
    while rest and gain(best := max(rest, key=gain)) > 0:
        chosen.append(best)
        rest.remove(best)
        counts.update(best.kinds)
    return chosen


def main(seed: int, count: int) -> None:
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    wanted = set(expected_here())
    chosen = choose(list(candidates(seed, count)), wanted)
    reached = Counter(kind for candidate in chosen for kind in candidate.kinds & wanted)
    print(f"{sum(candidate.seconds for candidate in chosen):.0f} s: {sorted(each.number for each in chosen)}")
    print(f"once: {sorted(kind for kind in reached if reached[kind] == 1)}")
    print(f"never: {sorted(wanted - set(reached))}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
