"""Draft tokens for the rows of a pass, by the sampler of the kernel set in use.

A fault of a request's own logits processor costs its draft and nothing else: verification meets it again and names it.
"""

from __future__ import annotations

from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING

from specserve.faults import RequestFault
from specserve.sampling.drafts import draft_tokens
from specserve.types import Draft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.protocols import DraftToken, DraftVocabulary, Sampler, ScoredRow


def choose(
    sampler: Sampler, logits: Tensor, rows: Sequence[ScoredRow], vocabulary: DraftVocabulary | None, count: int
) -> list[list[DraftToken]]:
    """logits: [n, D] float32. The best tokens of each of `rows`, best first: at most `count`, and none for a request
    whose processor fails."""
    if not rows:
        return []

    def of_sampler(rows: Sequence[ScoredRow]) -> list[list[DraftToken]]:
        chosen = sampler.draft_tokens(logits, rows, vocabulary, count)
        return draft_tokens(logits, rows, vocabulary, count) if chosen is None else chosen

    try:
        return of_sampler(rows)
    except RequestFault:
        found: list[list[DraftToken]] = [[] for _ in rows]
        plain = [i for i, row in enumerate(rows) if not row.request.processors]
        if plain:
            for i, tokens in zip(plain, of_sampler([rows[i] for i in plain]), strict=True):
                found[i] = tokens
        return found


def first_of_each(places: Sequence[Sequence[DraftToken]]) -> list[DraftToken]:
    """The best token of each place, before the first place that has none."""
    chain: list[DraftToken] = []
    for tokens in places:
        if not tokens:
            break
        chain.append(tokens[0])
    return chain


def chain_of(tokens: Sequence[DraftToken], source: str) -> Draft | None:
    """A draft of these tokens, each behind the one before it, which survives where all of them are right. None of
    none."""
    if not tokens:
        return None
    survival = accumulate((probability for _, probability in tokens), mul)
    return Draft(tokens=tuple(token for token, _ in tokens), survival=tuple(survival), source=source)
