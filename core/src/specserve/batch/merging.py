"""Several drafts of one request as one tree under a common root.

A path that two drafts have in common is there once; its nodes survive as the more confident draft says. Knows no
drafter and no cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve.batch.drafts import ROOT, keep, parents_of
from specserve.types import Draft

if TYPE_CHECKING:
    from collections.abc import Sequence


class Estimated(NamedTuple):
    """A draft, and P(node and its ancestors are accepted) of every node."""

    draft: Draft
    survival: Sequence[float]


def merge(drafts: Sequence[Estimated], limit: int) -> Draft | None:
    """The `limit` likeliest nodes of all drafts together; None for none. The only draft as it is."""
    if len(drafts) == 1:
        return drafts[0].draft
    tokens: list[int] = []
    parents: list[int] = []
    survival: list[float] = []
    sources: list[str] = []
    places: dict[tuple[int, int], int] = {}
    for draft, estimates in drafts:
        into = {ROOT: ROOT}
        for node, (parent, token) in enumerate(zip(parents_of(draft), draft.tokens, strict=True)):
            key = into[parent], token
            place = places.get(key)
            if place is None:
                place = places[key] = len(tokens)
                tokens.append(token)
                parents.append(key[0])
                survival.append(estimates[node])
                sources.append(draft.source)
            elif estimates[node] > survival[place]:
                survival[place], sources[place] = estimates[node], draft.source
            into[node] = place
    for node, parent in enumerate(parents):  # a child from one draft under a parent that the other doubted
        if parent != ROOT:
            survival[node] = min(survival[node], survival[parent])
    union = Draft(
        tokens=tuple(tokens),
        parents=tuple(parents),
        survival=tuple(survival),
        source="+".join(dict.fromkeys(draft.source for draft, _ in drafts)),
        sources=tuple(sources),
    )
    best = sorted(range(len(tokens)), key=lambda node: (-survival[node], node))[:limit]
    return keep(union, best)
