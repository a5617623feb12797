"""How many of the proposed draft tokens to verify: the default planner, and one that verifies all.

Let S be the sum of the survival estimates of a request's verified draft tokens. The request then gains 1 + S tokens in
the time that a step of that many rows takes. The default planner maximises the sum of the logarithms of the requests'
speeds (`rank_fairly`). Step times come from a table measured at start-up and corrected by real steps; survival comes
from the drafter, corrected by `Calibration`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from specserve.batch.drafts import depths_of, first, match
from specserve.speculation.backoff import UNKNOWN_PRICES, DraftBackoff
from specserve.speculation.choosing import best_prefix, cut_drafts, rank_fairly
from specserve.speculation.outcomes import Prices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.batch.batch import Batch
    from specserve.batch.request import Request
    from specserve.protocols import SurvivalEstimates
    from specserve.speculation.choosing import Ranked
    from specserve.speculation.costs import StepCosts
    from specserve.types import Draft, Verdict

MIN_GAIN = 0.02
"""Gain, in logarithms of one request's speed, below which nothing is verified: it lies within the estimates' error."""
PLAIN_STEP_INTERVAL = 4
"""While no request is asked for draft tokens, one plain step in this many updates the step costs."""
FIRST_GUESSES, GUESSES_RATE = 3.0, 0.05
"""Draft tokens of a request, for the time that one takes: before any is verified, and the rate of their moving
average."""
PROBE_INTERVAL = 32
"""One draft token is verified in one of this many steps in which none seems to pay, so that the estimates keep up."""


def most_useful(request: Request, max_draft_tokens: int) -> int:
    """Nodes that could still help: the request's own limit, and none in its last step, whose bonus is enough."""
    params = request.speculation
    if not params.enabled:
        return 0
    own = max_draft_tokens if params.max_draft_tokens is None else min(max_draft_tokens, params.max_draft_tokens)
    return own if request.max_depth > 0 else 0


class VerifyAll:
    """Verifies whatever is proposed, as far as the budget goes: for tests and for measuring drafters."""

    def __init__(self, max_draft_tokens: int) -> None:
        self.max_draft_tokens = max_draft_tokens

    def limits(self, requests: Sequence[Request]) -> list[int]:
        return [most_useful(request, self.max_draft_tokens) for request in requests]

    def choose(self, requests: Sequence[Request], budget: int, base_rows: int) -> list[Draft | None]:
        chosen: list[Draft | None] = []
        for request in requests:
            draft = request.draft and first(request.draft, budget)
            budget -= len(draft.tokens) if draft else 0
            chosen.append(draft)
        return chosen

    def learn(self, batch: Batch, verdict: Verdict, seconds: float) -> None:
        pass


class CostPlanner:
    """Maximises the expected speeds of all requests, proportionally fair."""

    def __init__(self, max_draft_tokens: int, costs: StepCosts, calibration: SurvivalEstimates) -> None:
        self.max_draft_tokens, self.costs, self.calibration = max_draft_tokens, costs, calibration
        self.backoff = DraftBackoff()
        self.unprofitable_steps = 0
        self.guesses_per_draft = FIRST_GUESSES
        """Verified ones, a moving average."""
        self.num_asked, self.choose_seconds = 0, 0.0
        """Requests that are asked in this step, and the time that `choose` took since the last."""

    def limits(self, requests: Sequence[Request]) -> list[int]:
        """0 for requests that back off."""
        selected = self.backoff.select(requests, self.prices(len(requests)))
        most, self.num_asked = self.max_draft_tokens, 0
        if not any(selected):
            return [0] * len(requests)
        limits = [most_useful(request, most) if yes else 0 for request, yes in zip(requests, selected, strict=True)]
        self.num_asked = sum(limit > 0 for limit in limits)
        return limits

    def asked(self, seconds: float, num_asked: int, pass_seconds: float) -> None:
        self.backoff.record_cost(seconds + self.choose_seconds, num_asked)
        self.choose_seconds = 0.0

    def prices(self, num_requests: int) -> Prices:
        """What the draft tokens of so many requests save and take, with as many for each as usual."""
        if not num_requests:
            return UNKNOWN_PRICES
        n, guesses = num_requests, max(1, round(self.guesses_per_draft * num_requests))
        plain = self.costs.seconds(n, n)
        return Prices(plain / n, (self.costs.seconds(n + guesses, n, guesses) - plain) / guesses)

    def choose(self, requests: Sequence[Request], budget: int, base_rows: int) -> list[Draft | None]:
        began = time.perf_counter()
        if budget <= 0:
            for request in requests:
                if request.draft is not None:
                    self.backoff.take_back(request.id)
            return [None] * len(requests)
        survivals = [self.calibration.survival(r.draft, r) if r.draft is not None else () for r in requests]
        ranked = rank_fairly(survivals)[:budget]
        if not ranked:
            return [None] * len(requests)
        chosen = cut_drafts(requests, ranked[: self.count(ranked, len(requests), base_rows)])
        self.choose_seconds = time.perf_counter() - began
        return chosen

    def count(self, ranked: Sequence[Ranked], num_requests: int, base_rows: int) -> int:
        """How many of the ranked draft tokens to verify."""
        seconds = self.costs.by_guesses(base_rows, num_requests, len(ranked))
        best = best_prefix(ranked, seconds, num_requests)
        if best.value > MIN_GAIN:
            self.unprofitable_steps = 0
            return best.num_nodes
        self.unprofitable_steps += 1
        return 1 if self.unprofitable_steps % PROBE_INTERVAL == 0 else 0

    def learn(self, batch: Batch, verdict: Verdict, seconds: float) -> None:
        drafted = batch.num_rows > len(batch.spans)
        if drafted or self.num_asked or self.backoff.step % PLAIN_STEP_INTERVAL == 0:
            self.costs.observe(batch, seconds)
            self.backoff.step_seconds = self.costs.seconds(len(batch.spans), len(batch.spans))
        for span, decided in zip(batch.spans, verdict.spans, strict=True):
            if span.proposed is not None and decided.tokens:
                self.calibration.observe(span.proposed, span.request, decided.tokens)
                if not span.drafted and match(span.proposed, decided.tokens[:1])[1]:
                    self.backoff.was_right(span.request.id, max(depths_of(span.proposed)))
            if span.drafted:
                self.guesses_per_draft += GUESSES_RATE * (span.drafted - self.guesses_per_draft)
                self.backoff.record(span.request.id, len(decided.path), span.drafted)
            if decided.finish_reason is not None:
                self.backoff.forget(span.request.id)
