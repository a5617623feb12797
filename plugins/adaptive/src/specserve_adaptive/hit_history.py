"""How many draft tokens of a drafter are right: over all requests, and for each request.

Text differs from request to request, so a request's own drafts count most once there are some; what all requests say is
the prior.
"""

from __future__ import annotations

from math import inf

DECAY = 0.9
"""Weight of a request's earlier drafts, per draft."""
PRIOR_WEIGHT = 2.0
"""Drafts that the mean over all requests stands for."""
MEAN_RATE = 0.02
FIRST_DRAFTS = 4
"""A drafter is not judged before this many of its drafts were scored."""


class HitHistory:
    """Of one drafter."""

    def __init__(self) -> None:
        self.mean = inf
        """Over all requests, a moving average; infinite while unknown, so that a new drafter drafts."""
        self.mean_verified = 0.0
        """Draft tokens of a draft, over all requests, a moving average."""
        self.num_scored = 0
        self.of_request: dict[str, tuple[float, float]] = {}
        """Decayed sums: hits and drafts."""

    def expected(self, request_id: str) -> float:
        """Right draft tokens of the next draft for this request."""
        if self.num_scored < FIRST_DRAFTS:
            return inf
        hits, drafts = self.of_request.get(request_id, (0.0, 0.0))
        return (hits + PRIOR_WEIGHT * self.mean) / (drafts + PRIOR_WEIGHT)

    def add(self, request_id: str, hits: float, verified: int) -> None:
        """A draft had `hits` right draft tokens along one path, and `verified` were verified."""
        self.num_scored += 1
        # a plain mean at first, so that one early miss does not dominate
        rate = max(MEAN_RATE, 1 / self.num_scored)
        self.mean = hits if self.num_scored == 1 else self.mean + rate * (hits - self.mean)
        self.mean_verified += rate * (verified - self.mean_verified)
        old_hits, old_drafts = self.of_request.get(request_id, (0.0, 0.0))
        self.of_request[request_id] = DECAY * old_hits + hits, DECAY * old_drafts + 1.0

    def forget(self, request_id: str) -> None:
        self.of_request.pop(request_id, None)
