"""Learned probabilities of candidates. Twin of evidence.hpp and predictor.hpp."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable

    from twin.trace import Relation

Kind = Literal["own", "shared", "corpus", "aligned"]
KINDS: tuple[Kind, ...] = ("own", "shared", "corpus", "aligned")
LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)  # the longest match of each bucket but the last
POINT = 16  # bits after the point
SERVER_FORGETTING, OWN_FORGETTING = 10, 6
SERVER_TRIALS, OWN_TRIALS = 4, 16
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


def first_guess(kind: Kind, length: int, is_first: bool) -> float:
    doubt = 1.0
    for _ in range(length + 1):
        doubt *= 0.75
    p = (0.9 if kind in ("own", "aligned") else 0.7) * (1 - doubt)
    return p if is_first else p / 3


class Cells(NamedTuple):
    """The three sides from which the evidence is looked at: roughly, by length, by rank."""

    rough: tuple[Kind, int, bool]
    by_length: tuple[Hashable, ...]
    by_rank: tuple[Hashable, ...]

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
        self.rough = {cell: Rate(first_guess(cell[0], cell[1], not cell[2]), SERVER_TRIALS) for cell in ROUGH_CELLS}
        self.fine: dict[tuple[Hashable, ...], Rate] = {}
        self.weights = {at: [FIRST_WEIGHT] * 3 for at in WEIGHT_SETS}

    def rates(self, e: Evidence) -> tuple[Rate, Rate, Rate]:
        cells = Cells.of(e)
        guess = first_guess(e.kind, length_bucket(e.length), True)
        by_length = self.fine.setdefault(cells.by_length, Rate(guess, SERVER_TRIALS))
        by_rank = self.fine.setdefault(cells.by_rank, Rate(first_guess(e.kind, 1, e.rank == 0), SERVER_TRIALS))
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
