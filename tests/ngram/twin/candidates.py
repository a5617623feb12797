"""The candidates for the next token, from the longest context down. Twin of candidates.hpp."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve_ngram._native import Origin, Tuning
from twin.predictor import Features

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from twin.alignment import Alignment
    from twin.contexts import Contexts


class Source(NamedTuple):
    contexts: Contexts
    origin: Origin


class CandidateLimits(NamedTuple):
    min_match: int
    max_match: int
    per_context: int
    per_token: int


class Candidate(NamedTuple):
    token: str
    source: int | None  # None: a prediction of the alignment
    context: str  # the match in that source after the token
    features: Features


class Position(NamedTuple):
    """Where a text stands. `matches[s]` is its longest context in source s; an empty one gives no candidates."""

    sources: Sequence[Source]
    matches: Sequence[str]
    alignment: Alignment
    text: str


def candidates(position: Position, limits: CandidateLimits) -> Iterator[Candidate]:
    """Each token once."""
    seen: set[str] = set()
    for candidate in every_candidate(position, limits):
        if candidate.token not in seen:
            seen.add(candidate.token)
            yield candidate
            if len(seen) == limits.per_token:
                return


def every_candidate(position: Position, limits: CandidateLimits) -> Iterator[Candidate]:
    at = [match[-limits.max_match :] for match in position.matches]
    has_predictions = position.alignment.at is not None
    for _ in range(Tuning.MAX_CONTEXTS):
        s = max(range(len(at)), key=lambda s: len(at[s]))
        is_exhausted = len(at[s]) < limits.min_match
        if has_predictions and (is_exhausted or position.alignment.length >= len(at[s])):
            has_predictions = False
            yield from predictions(position)
        if is_exhausted:
            return
        yield from continuations(position, s, at[s], limits)
        at[s] = position.sources[s].contexts.shorter(at[s])


def predictions(position: Position) -> Iterator[Candidate]:
    alignment, text = position.alignment, position.text
    for rank, token in enumerate(alignment.predictions(text)):
        if token is not None:
            relation = alignment.relation(text, token)
            features = Features(Origin.ALIGNMENT, relation, 1, rank, 1, 1, 1, alignment.run_length)
            yield Candidate(token, None, "", features)


def continuations(position: Position, s: int, context: str, limits: CandidateLimits) -> Iterator[Candidate]:
    (contexts, origin), alignment = position.sources[s], position.alignment
    top, degree = contexts.top(context)[: limits.per_context], contexts.degree(context)
    total = sum(count for _, count in top)
    for rank, (token, count) in enumerate(top):
        relation = alignment.relation(position.text, token)
        features = Features(origin, relation, len(context), rank, count, total, degree, alignment.run_length)
        yield Candidate(token, s, context + token, features)
