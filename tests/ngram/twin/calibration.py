"""Survival as estimated, corrected by what became of earlier drafts. Twin of calibration.hpp."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

KNOTS = 13
REACH = 6.0
SERVER_MEMORY, OWN_MEMORY = 0.9998, 0.998
SERVER_TRIALS, OWN_TRIALS = 16.0, 4.0


@dataclass(slots=True)
class Knot:
    hits: float = 0.0
    trials: float = 0.0

    def add(self, weight: float, memory: float, came_true: bool) -> None:
        keep = 1 - weight * (1 - memory)
        self.hits = self.hits * keep + weight * came_true
        self.trials = self.trials * keep + weight


@dataclass(slots=True)
class Curves:
    """A curve per habit, through knots."""

    knots: dict[tuple[int, int], Knot] = field(default_factory=dict)

    def knot(self, habit: int, at: int) -> Knot:
        return self.knots.setdefault((habit, at), Knot())


def between(survival: float) -> tuple[int, float]:
    """The knot before it, and how far it is to the next."""
    p = min(0.9975, max(0.0025, survival))
    x = (math.log(p / (1 - p)) + REACH) * (KNOTS - 1) / (2 * REACH)
    at = min(int(x), KNOTS - 2)
    return at, x - at


def identity(at: int) -> float:
    return 1 / (1 + math.exp(REACH - 2 * REACH * at / (KNOTS - 1)))


def correct(survival: float, curve: list[float]) -> float:
    at, part = between(survival)
    return (1 - part) * curve[at] + part * curve[at + 1]


class Calibration:
    def __init__(self, server: Curves) -> None:
        self.server, self.own = server, Curves()

    def curve(self, habit: int) -> list[float]:
        """Survival at the knots, never falling: neighbours out of order are pooled."""
        pools: list[tuple[float, float, int]] = []
        for at in range(KNOTS):
            pools.append((self.value(habit, at), self.own.knot(habit, at).trials + OWN_TRIALS, 1))
            while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
                (left, left_weight, many), (right, right_weight, more) = pools[-2:]
                weight = left_weight + right_weight
                pools[-2:] = [((left * left_weight + right * right_weight) / weight, weight, many + more)]
        return [mean for mean, _, knots in pools for _ in range(knots)]

    def learn(self, survival: float, habit: int, came_true: bool, news: float) -> None:
        at, part = between(survival)
        for curves, memory in ((self.own, OWN_MEMORY), (self.server, SERVER_MEMORY)):
            curves.knot(habit, at).add(news * (1 - part), memory, came_true)
            curves.knot(habit, at + 1).add(news * part, memory, came_true)

    def value(self, habit: int, at: int) -> float:
        everyone, own = self.server.knot(habit, at), self.own.knot(habit, at)
        p = (everyone.hits + SERVER_TRIALS * identity(at)) / (everyone.trials + SERVER_TRIALS)
        return (own.hits + OWN_TRIALS * p) / (own.trials + OWN_TRIALS)
