"""Which of the proposed draft tokens to verify, given what each adds and what a step of each size takes.

Draft tokens are sorted by what they add to the objective (`rank_fairly`); each prefix of that order contains the
parents of its draft tokens, so the best prefix is the best choice. The empty prefix is allowed.
"""

from __future__ import annotations

from itertools import accumulate
from math import log
from operator import sub
from typing import TYPE_CHECKING, NamedTuple

from specserve.batch.drafts import keep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.batch.request import Request
    from specserve.types import Draft


class Ranked(NamedTuple):
    """A draft token. `gain`: what it adds when all before it in the order are verified, in logarithms of requests'
    speeds, summed over the batch. `place`: of its request in the batch."""

    gain: float
    place: int
    node: int


def rank_fairly(survivals: Sequence[Sequence[float]]) -> list[Ranked]:
    """All draft tokens in the order in which they are to be taken, parents before their children, for the sum of the
    logarithms of the requests' speeds, which is proportionally fair (Kelly, 1997): a step may take longer only as far
    as the requests with drafts gain more than the others lose.

    survivals[i]: of request i's draft tokens, P(it and its ancestors are accepted); empty where it has no draft.
    """
    ranked = (Ranked(gain, i, node) for i, own in enumerate(survivals) for gain, node in log_gains(own))
    return sorted(ranked, key=order)


def order(ranked: Ranked) -> tuple[float, int, int]:
    return -ranked.gain, ranked.place, ranked.node


def log_gains(survival: Sequence[float]) -> list[tuple[float, int]]:
    """(gain, node) of each node of a draft, the most likely first: what it adds to the logarithm of its request's
    expected tokens when all nodes before it in this order are verified too."""
    gains, expected = [], 1.0
    for node in sorted(range(len(survival)), key=lambda node: (-survival[node], node)):
        gains.append((log((expected + survival[node]) / expected), node))
        expected += survival[node]
    return gains


class Choice(NamedTuple):
    """So many of the ranked draft tokens, and what verifying them adds to the objective."""

    num_nodes: int
    value: float


def best_prefix(ranked: Sequence[Ranked], seconds: Sequence[float], num_requests: int) -> Choice:
    """seconds[n]: of a step with the first n draft tokens, never falling; as many as `ranked` and one."""
    losses = [num_requests * log(each / seconds[0]) for each in seconds]
    values = list(map(sub, accumulate((each.gain for each in ranked), initial=0.0), losses))
    best = values.index(max(values))
    return Choice(best, values[best])


def cut_drafts(requests: Sequence[Request], ranked: Sequence[Ranked]) -> list[Draft | None]:
    """Each request's draft, cut to the draft tokens in `ranked`."""
    nodes: list[list[int]] = [[] for _ in requests]
    for _, i, node in ranked:
        nodes[i].append(node)
    return [
        keep(request.draft, chosen) if request.draft is not None else None
        for request, chosen in zip(requests, nodes, strict=True)
    ]
