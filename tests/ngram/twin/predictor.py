"""Learned probabilities of candidates. Twin of evidence.hpp and predictor.hpp."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable

    from twin.alignment import Relation

Kind = Literal["own", "shared", "corpus", "aligned"]
KINDS: tuple[Kind, ...] = ("own", "shared", "corpus", "aligned")
LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)  # the longest match of each bucket but the last
POINT = 16  # bits after the point
SERVER_FORGETTING, OWN_FORGETTING = 10, 6
SERVER_TRIALS, OWN_TRIALS = 8, 16
SERVER_PACE, OWN_PACE = 0.002, 0.003
FIRST_WEIGHT = 0.35
SUREST = 0.9995


@dataclass(frozen=True, slots=True)
class Evidence:
    kind: Kind
    relation: Relation
    length: int
    rank: int
    count: int
    total: int
    degree: int
    stretch: int


def log2_bucket(value: int, buckets: int) -> int:
    return min(max(value, 1).bit_length() - 1, buckets - 1)


def length_bucket(length: int) -> int:
    return sum(length > longest for longest in LENGTHS)


def degree_bucket(degree: int) -> int:
    return 0 if degree == 1 else 1 if degree == 2 else 2 if degree <= 4 else 3


def clamp(p: float) -> float:
    return min(SUREST, max(1 - SUREST, p))


class Rate:
    """Hits of trials in fixed point, the older the lighter."""

    def __init__(self, p: float, weight: int) -> None:
        self.trials = weight << POINT
        self.hits = int(p * self.trials)

    def add(self, hit: bool, forgetting: int) -> None:
        self.hits += (hit << POINT) - (self.hits >> forgetting)
        self.trials += (1 << POINT) - (self.trials >> forgetting)

    def value(self) -> float:
        return self.hits / self.trials

    def log_odds(self) -> float:
        p = clamp(self.value())
        return math.log(p / (1 - p))


# What a new server believes: the rows are lengths of contexts, or buckets of what the evidence counts.
FIRST = {
    "own": (0.15, 0.37, 0.49, 0.50, 0.55, 0.68, 0.72, 0.76, 0.82, 0.92, 0.97, 0.99),
    "other": (0.08, 0.15, 0.22, 0.32, 0.40, 0.53, 0.72, 0.86, 0.93, 0.96, 0.97, 0.98),
}
LATER = {"own": 0.45, "other": 0.35}
BY_COUNT = ((0.35, 0.61, 0.80, 0.95), (0.13, 0.30, 0.43, 0.74), (0.10, 0.18, 0.34, 0.40), (0.06, 0.09, 0.14, 0.22))
BY_RANK = (0.0, 0.10, 0.065, 0.05)
BY_STRETCH = {
    "next": (0.45, 0.55, 0.73, 0.93, 0.95, 0.96),
    "after_insertion": (0.06, 0.05, 0.04, 0.03, 0.02, 0.02),
    "after_replacement": (0.14, 0.07, 0.04, 0.03, 0.02, 0.02),
}
BESIDE = ("after_insertion", "after_replacement", "nearest")


def prior_alone(kind: Kind, length: int, is_first: bool) -> float:
    if kind == "aligned":
        return 0.46 if is_first else 0.07
    whose = "own" if kind == "own" else "other"
    return FIRST[whose][length] * (1 if is_first else LATER[whose])


def prior_of_guess(relation: Relation, stretch: int) -> float:
    return BY_STRETCH[relation][stretch] if relation in BY_STRETCH else 0.27


def prior_by_length(kind: Kind, length: int, relation: Relation, stretch: int) -> float:
    if kind == "aligned":
        return prior_of_guess(relation, stretch)
    alone = prior_alone(kind, length, True)
    if relation == "next" or relation in BESIDE:
        return max(alone, 0.85 if relation == "next" else 0.65)
    return alone * (0.5 if relation == "other" else 0.7)


def prior_by_rank(kind: Kind, rank: int, relation: Relation, degree: int, count: int) -> float:
    if kind == "aligned":
        return prior_of_guess(relation, count)
    if relation == "next":
        return 0.85
    if relation in BESIDE:
        return 0.65
    return BY_COUNT[degree][count] if rank == 0 else BY_RANK[rank]


class Cells(NamedTuple):
    """The three sides from which the evidence is looked at: roughly, by length, by rank."""

    rough: tuple[Kind, int, bool]
    by_length: tuple[Any, ...]
    by_rank: tuple[Any, ...]

    @classmethod
    def of(cls, e: Evidence) -> Cells:
        length, stretch = length_bucket(e.length), log2_bucket(e.stretch, 6)
        count = min(stretch, 3) if e.kind == "aligned" else log2_bucket(e.count, 4)
        rank = ("rank", e.kind, min(e.rank, 3), e.relation, degree_bucket(e.degree), count)
        return cls((e.kind, length, e.rank > 0), ("length", e.kind, length, e.relation, stretch), rank)


def weight_set(e: Evidence) -> tuple[Kind, bool, int]:
    return e.kind, e.rank > 0, sum(e.length >= least for least in (3, 8, 24))


def probability(weights: list[float], inputs: list[float]) -> float:
    total = 0.0
    for weight, value in zip(weights, inputs, strict=True):
        total += weight * value
    return clamp(1 / (1 + math.exp(-total)))


WEIGHT_SETS = [(kind, later, length) for kind in KINDS for later in (False, True) for length in range(4)]
ROUGH_CELLS = [(kind, n, later) for kind in KINDS for n in range(len(LENGTHS) + 1) for later in (False, True)]


class ServerPredictor:
    """What all requests learn together."""

    def __init__(self) -> None:
        self.rough = {cell: Rate(prior_alone(cell[0], cell[1], not cell[2]), SERVER_TRIALS) for cell in ROUGH_CELLS}
        self.fine: dict[tuple[Hashable, ...], Rate] = {}
        self.weights = {at: [FIRST_WEIGHT] * 3 for at in WEIGHT_SETS}

    def rates(self, e: Evidence) -> tuple[Rate, Rate, Rate]:
        cells = Cells.of(e)
        length_prior, rank_prior = prior_by_length(*cells.by_length[1:]), prior_by_rank(*cells.by_rank[1:])
        by_length = self.fine.setdefault(cells.by_length, Rate(length_prior, SERVER_TRIALS))
        by_rank = self.fine.setdefault(cells.by_rank, Rate(rank_prior, SERVER_TRIALS))
        return self.rough[cells.rough], by_length, by_rank


class Predictor:
    """A request's: it begins with what the server knows, and keeps weights and the rough rates for itself."""

    def __init__(self, server: ServerPredictor) -> None:
        self.server = server
        self.rough = {cell: Rate(rate.value(), OWN_TRIALS) for cell, rate in server.rough.items()}
        self.weights = {at: list(weights) for at, weights in server.weights.items()}

    def inputs(self, e: Evidence) -> list[float]:
        _, by_length, by_rank = self.server.rates(e)
        return [rate.log_odds() for rate in (self.rough[Cells.of(e).rough], by_length, by_rank)]

    def estimate(self, e: Evidence) -> float:
        return probability(self.weights[weight_set(e)], self.inputs(e))

    def learn(self, e: Evidence, hit: bool) -> None:
        inputs = self.inputs(e)
        for weights, pace in ((self.weights, OWN_PACE), (self.server.weights, SERVER_PACE)):
            mixed = weights[weight_set(e)]
            step = pace * (hit - probability(mixed, inputs))
            mixed[:] = [weight + step * value for weight, value in zip(mixed, inputs, strict=True)]
        for rate in self.server.rates(e):
            rate.add(hit, SERVER_FORGETTING)
        self.rough[Cells.of(e).rough].add(hit, OWN_FORGETTING)
