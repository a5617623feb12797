"""What steps take, by what came before them.

A draft model's passes and the rows of draft tokens leave other things in the processor's caches than plain decoding
does: a draft now and then makes its step slower than drafts in every step do, and a plain step after drafts, or for
which drafters drafted, is slower than others. `StepCosts` learns of steps that follow their like; what the others
take beyond that is learned here.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from specserve_adaptive.step_costs import size_class

if TYPE_CHECKING:
    from specserve.api.batch import ScheduledBatch
    from specserve_adaptive.step_costs import StepCosts

RATE, MOST = 0.1, 2.0
"""Of the moving averages; a step counts as this many times its expectation at most."""
SHARE = 0.15
"""Of the error of such a step for which `StepCosts` is corrected: the machine may have become faster or slower."""


class Regimes:
    """`costs`: of steps that follow their like. It is corrected here, too."""

    def __init__(self, costs: StepCosts) -> None:
        self.costs = costs
        self.follows_drafts = False
        """Whether the last step had draft tokens."""
        self.extra: dict[tuple[int, bool], float] = {}
        """Seconds by size class: of a first step with draft tokens (True), and of a plain one after drafts or for which
        drafters drafted (False)."""

    def extra_seconds(self, requests: int, *, drafts: bool) -> float:
        """What the next step, for which drafters drafted, takes beyond `costs` with draft tokens, or without."""
        is_usual = drafts and self.follows_drafts
        return 0.0 if is_usual else self.extra.get((size_class(requests), drafts), 0.0)

    def by_draft_tokens(self, rows: int, requests: int, max_draft_tokens: int) -> list[float]:
        """`StepCosts.by_draft_tokens` of the next step, for which drafters drafted."""
        plain, *drafted = self.costs.by_draft_tokens(rows, requests, max_draft_tokens)
        extra = self.extra_seconds(requests, drafts=True)
        plain += self.extra_seconds(requests, drafts=False)
        return list(accumulate((each + extra for each in drafted), max, initial=plain))

    def observe(self, batch: ScheduledBatch, seconds: float, *, drafting: bool) -> None:
        """`drafting`: whether drafters drafted for this step."""
        if not batch.only_decodes:
            return
        requests = len(batch.spans)
        drafts = batch.num_rows > requests
        is_usual = drafts == self.follows_drafts and (drafts or not drafting)
        if not is_usual and self.costs.knows(requests):
            expected = self.costs.seconds(batch.num_rows, requests, batch.num_rows - requests)
            place = size_class(requests), drafts
            extra = self.extra.get(place, 0.0)
            error = min(seconds, MOST * (expected + extra)) - expected - extra
            self.extra[place] = max(0.0, extra + RATE * error)
            seconds = expected + SHARE * error
        self.costs.observe(batch, seconds)
