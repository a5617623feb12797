"""Calibration of survival estimates against what was accepted.

Every proposal, verified or not, is scored against the tokens that the target then gave: a draft token whose ancestors
were all right is a hit or a miss as soon as the token at its depth is known. A stated survival of 0.7 is corrected
to the rate at which this drafter's draft tokens with such estimates were right; without estimates, rates go by depth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.batch.drafts import ROOT, depths_of, parents_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.batch.request import Request
    from specserve.types import Draft

PRIOR_TRIALS = 8.0
DECAY = 0.995
"""Weight of earlier trials, per trial: about the last 200 trials count."""
PRIOR_RATE = 0.6
"""Without an estimate: the prior probability that a draft token is right when its parent was."""
BUCKETS = 10
WARMEST = 8
"""The class of all temperatures from 2 on."""


class Rate:
    """Exponentially decayed counts of hits and trials."""

    __slots__ = ("hits", "trials")

    def __init__(self) -> None:
        self.hits = self.trials = 0.0

    def add(self, hit: bool) -> None:
        self.hits = self.hits * DECAY + hit
        self.trials = self.trials * DECAY + 1.0


class Calibration:
    """Conditional rates of hits, by source, temperature and stated conditional survival, or depth."""

    def __init__(self) -> None:
        self.rates: dict[tuple[str, int, str, int], Rate] = {}

    def survival(self, draft: Draft, request: Request) -> list[float]:
        """P(node and its ancestors are accepted), for every node; never above its parent's."""
        survival: list[float] = []
        rates, source, warmth = self.rates, draft.source, temperature_class(request)
        for parent, (kind, bucket, prior) in zip(parents_of(draft), conditionals(draft), strict=True):
            rate = rates.get((source, warmth, kind, bucket))
            own = prior if rate is None else (rate.hits + prior * PRIOR_TRIALS) / (rate.trials + PRIOR_TRIALS)
            survival.append(own if parent == ROOT else own * survival[parent])
        return survival

    def observe(self, draft: Draft, request: Request, tokens: Sequence[int]) -> None:
        """`tokens`: what the target gave after the draft's root."""
        right = {ROOT: 0}
        """Node -> depth."""
        guessed, warmth = draft.tokens, temperature_class(request)
        conditional = None
        for node, parent in enumerate(parents_of(draft)):
            depth = right.get(parent)
            if depth is None or depth >= len(tokens):
                continue
            hit = guessed[node] == tokens[depth]
            if hit:
                right[node] = depth + 1
            conditional = conditional or conditionals(draft)
            kind, bucket, _ = conditional[node]
            rate = self.rates.get((draft.source, warmth, kind, bucket))
            if rate is None:
                rate = self.rates[draft.source, warmth, kind, bucket] = Rate()
            rate.add(hit)


def temperature_class(request: Request) -> int:
    """Draft tokens are right as often as others at about the same temperature: greedy, then by quarters."""
    return min(round(4 * request.params.temperature), WARMEST)


def conditionals(draft: Draft) -> list[tuple[str, int, float]]:
    """(kind, bucket, stated P(node right | parent right)) of every node."""
    if draft.survival is None:
        return [("depth", min(depth, 16), PRIOR_RATE) for depth in depths_of(draft)]
    stated, survival = [], draft.survival
    for parent, own in zip(parents_of(draft), survival, strict=True):
        before = 1.0 if parent == ROOT else survival[parent]
        conditional = own / before if before > own else 1.0 if before > 0 else 0.0
        stated.append(("stated", int(conditional * BUCKETS) if conditional < 1.0 else BUCKETS - 1, conditional))
    return stated
