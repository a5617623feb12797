"""What may come next: continuations of all contexts, from the longest down. Twin of trail.hpp."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from twin.predictor import Evidence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from twin.alignment import Trace
    from twin.contexts import Contexts
    from twin.predictor import Kind

MOST_CONTEXTS = 32


class Source(NamedTuple):
    contexts: Contexts
    kind: Kind


class Window(NamedTuple):
    min_match: int
    max_match: int
    per_context: int
    per_token: int


class Candidate(NamedTuple):
    token: str
    source: int | None  # None: the alignment's guess
    context: str  # the source's, with the token
    evidence: Evidence


def candidates(
    sources: Sequence[Source], places: Sequence[str], trace: Trace, text: str, window: Window
) -> Iterator[Candidate]:
    """Each token once. `places[s]` is the longest context of source s; an empty one is not heard."""
    seen: set[str] = set()
    for candidate in every_candidate(sources, places, trace, text, window):
        if candidate.token not in seen:
            seen.add(candidate.token)
            yield candidate
            if len(seen) == window.per_token:
                return


def every_candidate(
    sources: Sequence[Source], places: Sequence[str], trace: Trace, text: str, window: Window
) -> Iterator[Candidate]:
    at = [place[-window.max_match :] for place in places]
    guesses_wait = trace.at is not None
    for _ in range(MOST_CONTEXTS):
        s = max(range(len(at)), key=lambda s: len(at[s]))
        over = len(at[s]) < window.min_match
        if guesses_wait and (over or trace.length >= len(at[s])):
            guesses_wait = False
            yield from guesses(trace, text)
        if over:
            return
        yield from continuations(sources[s], s, at[s], trace, text, window)
        at[s] = sources[s].contexts.shorter(at[s])


def guesses(trace: Trace, text: str) -> Iterator[Candidate]:
    for which, token in enumerate(trace.guesses(text)):
        if token is not None:
            relation = trace.relation(text, token)
            yield Candidate(token, None, "", Evidence("aligned", relation, 1, which, 1, 1, 1, trace.age))


def continuations(source: Source, s: int, context: str, trace: Trace, text: str, window: Window) -> Iterator[Candidate]:
    group = source.contexts.groups[context]
    total = sum(group.counts[token] for token in group.front[: window.per_context])
    for rank, token in enumerate(group.front[: window.per_context]):
        relation, length, count = trace.relation(text, token), len(context), group.counts[token]
        evidence = Evidence(source.kind, relation, length, rank, count, total, len(group.counts), trace.age)
        yield Candidate(token, s, context + token, evidence)
