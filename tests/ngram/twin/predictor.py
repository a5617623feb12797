"""Estimated probabilities of candidates. Twin of features.hpp and predictor.hpp; the priors are the native ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from specserve_ngram._native import Origin, Tuning

if TYPE_CHECKING:
    from specserve_ngram._native import Relation


@dataclass(frozen=True, slots=True)
class Features:
    origin: Origin
    relation: Relation
    match_length: int
    rank: int
    count: int
    total: int
    degree: int
    run_length: int


def log2_bucket(value: int, buckets: int) -> int:
    return min(max(value, 1).bit_length() - 1, buckets - 1)


def length_bucket(length: int) -> int:
    return sum(length > bound for bound in Tuning.LENGTH_BOUNDS)


def degree_bucket(degree: int) -> int:
    return 0 if degree == 1 else 1 if degree == 2 else 2 if degree <= 4 else 3


def clamp(p: float) -> float:
    return min(Tuning.MAX_PROBABILITY, max(1 - Tuning.MAX_PROBABILITY, p))


class Rate:
    """Hits and trials in fixed point, with exponential decay."""

    def __init__(self, p: float, weight: int) -> None:
        self.trials = weight << Tuning.POINT
        self.hits = int(p * self.trials)

    def add(self, hit: bool, decay_shift: int) -> None:
        self.hits += (hit << Tuning.POINT) - (self.hits >> decay_shift)
        self.trials += (1 << Tuning.POINT) - (self.trials >> decay_shift)

    def value(self) -> float:
        return self.hits / self.trials

    def log_odds(self) -> float:
        p = clamp(self.value())
        return math.log(p / (1 - p))


OriginCell = tuple[Origin, int, bool]
LengthCell = tuple[Origin, int, "Relation", int]
RankCell = tuple[Origin, int, "Relation", int, int]


class Cells(NamedTuple):
    """Where the three tables keep the rate of candidates with some features."""

    by_origin: OriginCell
    by_length: LengthCell
    by_rank: RankCell

    @classmethod
    def of(cls, f: Features) -> Cells:
        length, run = length_bucket(f.match_length), log2_bucket(f.run_length, Tuning.RUN_BUCKETS)
        rank, last_count = min(f.rank, Tuning.RANK_BUCKETS - 1), Tuning.COUNT_BUCKETS - 1
        is_prediction = f.origin is Origin.ALIGNMENT
        count = min(run, last_count) if is_prediction else log2_bucket(f.count, Tuning.COUNT_BUCKETS)
        return cls(
            (f.origin, length, f.rank > 0),
            (f.origin, length, f.relation, run),
            (f.origin, rank, f.relation, degree_bucket(f.degree), count),
        )


def weight_set(f: Features) -> tuple[Origin, bool, int]:
    return f.origin, f.rank > 0, sum(f.match_length >= bound for bound in (3, 8, 24))


def probability(weights: list[float], inputs: list[float]) -> float:
    total = 0.0
    for weight, value in zip(weights, inputs, strict=True):
        total += weight * value
    return clamp(1 / (1 + math.exp(-total)))


WEIGHT_SETS = [(origin, later, length) for origin in Origin for later in (False, True) for length in range(4)]
ORIGIN_CELLS = [
    (origin, n, later) for origin in Origin for n in range(len(Tuning.LENGTH_BOUNDS) + 1) for later in (False, True)
]


class GlobalPredictor:
    """What all requests learn together."""

    def __init__(self) -> None:
        self.by_origin = {
            (origin, length, later): Rate(Tuning.prior_by_origin(origin, length, not later), Tuning.GLOBAL_PRIOR_TRIALS)
            for origin, length, later in ORIGIN_CELLS
        }
        self.by_length: dict[LengthCell, Rate] = {}
        self.by_rank: dict[RankCell, Rate] = {}
        self.weights = {at: [Tuning.INITIAL_WEIGHT] * 3 for at in WEIGHT_SETS}

    def rates(self, f: Features) -> tuple[Rate, Rate, Rate]:
        by_origin, by_length, by_rank = Cells.of(f)
        if by_length not in self.by_length:
            self.by_length[by_length] = Rate(Tuning.prior_by_length(*by_length), Tuning.GLOBAL_PRIOR_TRIALS)
        if by_rank not in self.by_rank:
            self.by_rank[by_rank] = Rate(Tuning.prior_by_rank(*by_rank), Tuning.GLOBAL_PRIOR_TRIALS)
        return self.by_origin[by_origin], self.by_length[by_length], self.by_rank[by_rank]


class Predictor:
    """A request's: it starts from what is known globally and has weights and first-table rates of its own."""

    def __init__(self, everyone: GlobalPredictor) -> None:
        self.everyone = everyone
        self.by_origin = {
            cell: Rate(rate.value(), Tuning.REQUEST_PRIOR_TRIALS) for cell, rate in everyone.by_origin.items()
        }
        self.weights = {at: list(weights) for at, weights in everyone.weights.items()}

    def inputs(self, f: Features) -> list[float]:
        _, by_length, by_rank = self.everyone.rates(f)
        return [rate.log_odds() for rate in (self.by_origin[Cells.of(f).by_origin], by_length, by_rank)]

    def estimate(self, f: Features) -> float:
        return probability(self.weights[weight_set(f)], self.inputs(f))

    def learn(self, f: Features, hit: bool) -> None:
        inputs = self.inputs(f)
        for weights, learning_rate in (
            (self.weights[weight_set(f)], Tuning.REQUEST_LEARNING_RATE),
            (self.everyone.weights[weight_set(f)], Tuning.GLOBAL_LEARNING_RATE),
        ):
            step = learning_rate * (hit - probability(weights, inputs))
            weights[:] = [weight + step * value for weight, value in zip(weights, inputs, strict=True)]
        for rate in self.everyone.rates(f):
            rate.add(hit, Tuning.GLOBAL_DECAY_SHIFT)
        self.by_origin[Cells.of(f).by_origin].add(hit, Tuning.REQUEST_DECAY_SHIFT)
