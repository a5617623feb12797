"""One of a few fixed widths, by how many draft tokens were accepted lately: what other engines call adaptive.

A moving average of the accepted draft tokens per draft is compared with the present width and the next narrower one.
It knows neither costs nor the single request; it is there for comparison, and for graphs of few shapes.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from specserve.api import Metric
from specserve.api.drafts import FixedWidthPlanner, draft_limit
from specserve_adaptive._native import Planner
from specserve_adaptive.competition import Competition
from specserve_adaptive.observer import GAUGE
from specserve_adaptive.ranked import MIN_GAIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from specserve.api import Verdict
    from specserve.api.batch import Request, ScheduledBatch
    from specserve_adaptive.tier_settings import Candidates, TierSettings

RETRY_INTERVAL = 64
"""Steps without draft tokens after which the narrowest width above 0 is tried again."""
MARGIN = 0.5
"""So close to all of a width must be accepted for the next wider one."""


class Tier:
    """The width for batches of one range of sizes."""

    def __init__(self, candidates: Candidates, settings: TierSettings) -> None:
        self.candidates, self.settings = candidates, settings
        self.place = next((i for i, width in enumerate(candidates) if width), 0)
        self.average: float | None = None
        """Accepted draft tokens per draft."""
        self.num_steps = self.num_plain_steps = 0

    @property
    def width(self) -> int:
        return self.candidates[self.place]

    def begin_step(self) -> None:
        if self.width or len(self.candidates) == 1:
            return
        self.num_plain_steps += 1
        if self.num_plain_steps >= RETRY_INTERVAL:
            self.move(+1)

    def observe(self, accepted: float) -> None:
        """The mean over the drafts of a step."""
        alpha = self.settings.ema_alpha
        self.average = accepted if self.average is None else self.average + alpha * (accepted - self.average)
        self.num_steps += 1
        beyond = self.num_steps - self.settings.warm_up
        if self.width and beyond >= 0 and beyond % self.settings.interval == 0:
            self.adapt(self.average)

    def adapt(self, average: float) -> None:
        if self.place + 1 < len(self.candidates) and average > self.width - MARGIN + self.settings.up_hysteresis:
            self.move(+1)
        elif self.place:
            narrower = self.candidates[self.place - 1]
            if average < max(narrower - MARGIN, MARGIN) + self.settings.down_hysteresis:
                self.move(-1)

    def move(self, by: int) -> None:
        """A width that drafts again after a pause starts as if new."""
        if not self.width:
            self.average, self.num_steps = None, 0
        self.place += by
        self.num_plain_steps = 0


class TierPlanner(FixedWidthPlanner):
    """Verifies whatever is proposed within the present width."""

    def __init__(self, settings: TierSettings, max_draft_tokens: int) -> None:
        super().__init__(max_draft_tokens)
        self.composer = Competition(Planner("fair", MIN_GAIN), None, scores_all=True)
        tables = settings.tables
        self.sizes = list(tables)
        self.tiers = [Tier(candidates, settings) for candidates in tables.values()]

    def tier_of(self, num_requests: int) -> Tier:
        return self.tiers[max(0, bisect_right(self.sizes, num_requests) - 1)]

    def limits(self, requests: Sequence[Request]) -> list[int]:
        tier = self.tier_of(len(requests))
        tier.begin_step()
        return [draft_limit(request, min(tier.width, self.max_draft_tokens)) for request in requests]

    def describe(self) -> dict[str, Any]:
        widths = {str(size): tier.width for size, tier in zip(self.sizes, self.tiers, strict=True)}
        return {"mode": "tiers", "width_by_batch_size": widths}

    def metrics(self) -> Iterator[Metric]:
        for size, tier in zip(self.sizes, self.tiers, strict=True):
            labels = (("batch_size", str(size)),)
            yield Metric("specserve_adaptive_tier", "Present width, by smallest batch size", GAUGE, tier.width, labels)
            help = "Moving average of accepted draft tokens per draft"
            yield Metric("specserve_adaptive_tier_accepted", help, GAUGE, tier.average or 0.0, labels)

    def learn(self, batch: ScheduledBatch, verdict: Verdict, seconds: float) -> None:
        accepted = [len(decided.path) for span, decided in zip(batch.spans, verdict.spans, strict=True) if span.drafted]
        if accepted:
            self.tier_of(len(batch.spans)).observe(sum(accepted) / len(accepted))
