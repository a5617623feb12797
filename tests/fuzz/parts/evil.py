"""A drafter that breaks its contract in most steps: in what it returns, in its drafts, in what it does to arguments."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy
import torch

from fuzz.parts.guessing import Noisy
from specserve.types import Draft

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from specserve.batch.request import Request


class LyingList(list):
    """Yields more than its length says."""

    def __iter__(self):
        return iter([Draft(tokens=(1,))] * (len(self) + 3))


class BrokenList(list):
    def __iter__(self):
        raise RuntimeError("cannot be iterated")


class TruthlessList(list):
    def __bool__(self) -> bool:
        raise RuntimeError("has no truth value")


class UnreadableDraft(Draft, frozen=True):
    @property
    def tokens(self):
        raise RuntimeError("has no tokens")


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise ValueError("cannot be printed either")


class EndlessTokens:
    """Its list is itself."""

    def tolist(self) -> EndlessTokens:
        return self


ERRORS = (RuntimeError, MemoryError, RecursionError, StopIteration, UnprintableError)
NOT_SEQUENCES = (None, 7, 0.5, object())
NOT_TOKENS: tuple[Any, ...] = ((1.5,), ("1",), (True,), (None,), 3, {1}, b"ab")


def throw(kind: type[Exception]) -> Any:
    raise kind


def widen(limits: Any) -> list[Draft]:
    """Raise the limits in place and use them."""
    for i in range(len(limits)):
        limits[i] = 10**6
    return [Draft(tokens=(1,) * 5000)] * len(limits)


def emptied(limits: Any) -> list[Draft]:
    count = len(limits)
    limits.clear()
    return [Draft(tokens=(1,))] * count


# Answers to `propose`: n is how many drafts are due.
ANSWERS: dict[str, Callable[[int, Any, Random], Any]] = {
    "raises": lambda n, limits, rng: throw(rng.choice(ERRORS)),
    "too few or too many": lambda n, limits, rng: [None] * (n + rng.choice((-1, 1))),
    "no sequence": lambda n, limits, rng: rng.choice(NOT_SEQUENCES),
    "dictionary": lambda n, limits, rng: dict.fromkeys(range(n)),
    "generator": lambda n, limits, rng: (draft for draft in [None] * n),
    "strings": lambda n, limits, rng: ("drafts",) * n,
    "array": lambda n, limits, rng: numpy.array([None] * n, dtype=object),
    "array of drafts": lambda n, limits, rng: numpy.array([*[Draft(tokens=(1,))] * n, None], dtype=object)[:n],
    "tensor": lambda n, limits, rng: torch.zeros(n),
    "tuple": lambda n, limits, rng: (None,) * n,
    "lying list": lambda n, limits, rng: LyingList([None] * n),
    "broken list": lambda n, limits, rng: BrokenList([None] * n),
    "list without truth": lambda n, limits, rng: TruthlessList([None] * n),
    "raised limits": lambda n, limits, rng: widen(limits),
    "emptied limits": lambda n, limits, rng: emptied(limits),
}


# Drafts made from a good chain; V: size of the vocabulary.
DRAFTS: dict[str, Callable[[Draft, int, int, Random], Any]] = {
    "good": lambda good, limit, V, rng: good,
    "too wide": lambda good, limit, V, rng: Draft(tokens=(rng.randrange(V),) * (limit + rng.randint(1, 50))),
    "negative": lambda good, limit, V, rng: Draft(tokens=(-1, *good.tokens[1:])),
    "beyond": lambda good, limit, V, rng: Draft(tokens=(V + rng.choice((0, 1, 1 << 40, 1 << 70)),)),
    "huge": lambda good, limit, V, rng: Draft(tokens=(2**63,)),
    "no integers": lambda good, limit, V, rng: Draft(tokens=rng.choice(NOT_TOKENS)),
    "endless": lambda good, limit, V, rng: Draft(tokens=EndlessTokens()),
    "parents follow": lambda good, limit, V, rng: replaced(good, parents=tuple(range(len(good.tokens)))),
    "parents below -1": lambda good, limit, V, rng: replaced(good, parents=(-2,) * len(good.tokens)),
    "parents too many": lambda good, limit, V, rng: replaced(good, parents=(0,) * (len(good.tokens) + 1)),
    "survival odd": lambda good, limit, V, rng: replaced(
        good, survival=(rng.choice((math.nan, math.inf, -1.0, 2.0, 10**400)),) * len(good.tokens)
    ),
    "survival too many": lambda good, limit, V, rng: replaced(good, survival=(0.5,) * (len(good.tokens) + 1)),
    "tensors": lambda good, limit, V, rng: Draft(
        tokens=torch.tensor(good.tokens), survival=torch.full((len(good.tokens),), 0.5)
    ),
    "source": lambda good, limit, V, rng: replaced(good, source=rng.choice((None, 3, "evil\n", ["x"]))),
    "unreadable": lambda good, limit, V, rng: UnreadableDraft(tokens=(1,)),
    "no draft": lambda good, limit, V, rng: rng.choice((object(), (1, 2), 0, "")),
}


def replaced(good: Draft, **fields: Any) -> Draft:
    """A chain of the same tokens with these fields, which nobody checks before the engine does."""
    return Draft(**({"tokens": good.tokens} | fields))


class Evil(Noisy):
    name = "evil"

    def start(self, request: Request) -> None:
        if self.rng.random() < 0.05:
            raise RuntimeError("start")

    stop = start

    def propose(self, batch, output, verdict, limits):
        if self.rng.random() < 0.5:
            return self.rng.choice(list(ANSWERS.values()))(len(limits), limits, self.rng)
        return [self.any_draft(span.request, limit) for span, limit in zip(batch.spans, limits, strict=True)]

    def any_draft(self, request: Request, limit: int) -> Any:
        """Also where none is wanted."""
        good = self.draft(request, max(limit, 1))
        if good is None:
            return None
        return self.rng.choice(list(DRAFTS.values()))(good, limit, self.vocab_size, self.rng)
