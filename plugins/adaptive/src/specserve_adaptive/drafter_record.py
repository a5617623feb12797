"""What is known of one of several drafters: how many of its draft tokens are right, and what a draft of it takes."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from specserve.api.drafts import ROOT, match, parents_of
from specserve_adaptive.hit_history import HitHistory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.api import Draft

COST_RATE, FIRST_COST_RATE, FIRST_COSTS = 0.05, 0.5, 8
"""Of the moving average of what a draft takes, in the long run, and for about so many drafts: the first ones take
longer, since a draft model reads the prompt then."""
MIN_PROBE_INTERVAL, PROBE_SHARE = 16, 0.005
"""Steps after which a drafter is called again, whatever other drafts are expected to gain: at least the
first, and enough that it takes no more than this share of the time."""

FIRST_SECONDS, MOST_FIRST_DRAFTS = 0.025, 32
"""A drafter is new for so long, and for no more drafts: its first ones may be of text that another drafter suits."""


class DrafterRecord:
    def __init__(self, num_steps: int) -> None:
        self.hits = HitHistory()
        self.seconds_per_draft = 0.0
        """To draft for one request, a moving average."""
        self.num_costs = 0
        self.called_at = num_steps
        """The last step after which it was to propose."""

    def observe_cost(self, seconds: float) -> None:
        """Of a draft for one request."""
        self.num_costs += 1
        before = self.seconds_per_draft
        rate = max(COST_RATE, FIRST_COST_RATE * min(1.0, FIRST_COSTS / self.num_costs))
        self.seconds_per_draft = before + rate * (seconds - before) if before else seconds

    def expected(self, request_id: str) -> float:
        """Right draft tokens of the next draft for this request; infinite while the drafter is new."""
        count = self.hits.num_scored
        is_new = count < MOST_FIRST_DRAFTS and count * self.seconds_per_draft < FIRST_SECONDS
        return inf if is_new else self.hits.expected(request_id)

    def is_due(self, num_steps: int, num_requests: int, step_seconds: float) -> bool:
        """Whether its measurements are out of date, since it was not called for long."""
        steps, spent = num_steps - self.called_at, self.seconds_per_draft * num_requests
        return steps > MIN_PROBE_INTERVAL and steps * step_seconds * PROBE_SHARE >= spent


def right_tokens(draft: Draft, survival: Sequence[float], tokens: Sequence[int]) -> float:
    """How many draft tokens along one path were right. What follows the last known token counts as estimated."""
    node, depth = match(draft, tokens)
    if depth < len(tokens) or node == ROOT or not survival[node]:
        return depth
    below = {node}
    beyond = 0.0
    for child, parent in enumerate(parents_of(draft)):
        if parent in below:
            below.add(child)
            beyond += survival[child] / survival[node]
    return depth + beyond
