"""Survival estimates, corrected by what became of earlier drafts. Twin of calibration.hpp."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from specserve_ngram._native import Tuning

KNOTS, MAX_LOG_ODDS = Tuning.KNOTS, Tuning.MAX_LOG_ODDS
GLOBAL_TRIALS, OWN_TRIALS = Tuning.GLOBAL_CURVE_TRIALS, Tuning.REQUEST_CURVE_TRIALS


@dataclass(slots=True)
class Knot:
    hits: float = 0.0
    trials: float = 0.0

    def add(self, weight: float, decay: float, accepted: bool) -> None:
        keep = 1 - weight * (1 - decay)
        self.hits = self.hits * keep + weight * accepted
        self.trials = self.trials * keep + weight


@dataclass(slots=True)
class Curves:
    """A curve per bucket of the hit rate, through knots."""

    knots: dict[tuple[int, int], Knot] = field(default_factory=dict)

    def knot(self, hit_rate: int, at: int) -> Knot:
        return self.knots.setdefault((hit_rate, at), Knot())


def position_of(survival: float) -> tuple[int, float]:
    """The last knot at or before it, and the part of the way to the next one."""
    p = min(Tuning.MAX_SURVIVAL, max(Tuning.MIN_SURVIVAL, survival))
    x = (math.log(p / (1 - p)) + MAX_LOG_ODDS) * (KNOTS - 1) / (2 * MAX_LOG_ODDS)
    at = min(int(x), KNOTS - 2)
    return at, x - at


def identity(at: int) -> float:
    return 1 / (1 + math.exp(MAX_LOG_ODDS - 2 * MAX_LOG_ODDS * at / (KNOTS - 1)))


def correct(survival: float, curve: list[float]) -> float:
    at, part = position_of(survival)
    return (1 - part) * curve[at] + part * curve[at + 1]


class Calibration:
    def __init__(self, everyone: Curves) -> None:
        self.everyone, self.own = everyone, Curves()

    def curve(self, hit_rate: int) -> list[float]:
        """Survival at the knots, non-decreasing: adjacent violators are pooled."""
        pools: list[tuple[float, float, int]] = []
        for at in range(KNOTS):
            pools.append((self.value(hit_rate, at), self.own.knot(hit_rate, at).trials + OWN_TRIALS, 1))
            while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
                (left, left_weight, many), (right, right_weight, more) = pools[-2:]
                weight = left_weight + right_weight
                pools[-2:] = [((left * left_weight + right * right_weight) / weight, weight, many + more)]
        return [mean for mean, _, knots in pools for _ in range(knots)]

    def learn(self, survival: float, hit_rate: int, accepted: bool, weight: float) -> None:
        at, part = position_of(survival)
        for curves, decay in ((self.own, Tuning.REQUEST_DECAY), (self.everyone, Tuning.GLOBAL_DECAY)):
            curves.knot(hit_rate, at).add(weight * (1 - part), decay, accepted)
            curves.knot(hit_rate, at + 1).add(weight * part, decay, accepted)

    def value(self, hit_rate: int, at: int) -> float:
        everyone, own = self.everyone.knot(hit_rate, at), self.own.knot(hit_rate, at)
        p = (everyone.hits + GLOBAL_TRIALS * identity(at)) / (everyone.trials + GLOBAL_TRIALS)
        return (own.hits + OWN_TRIALS * p) / (own.trials + OWN_TRIALS)
