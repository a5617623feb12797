"""The draft tokens of the whole batch by what each adds, as many as pay: decided natively, priced here.

Estimates of survival, the choice and the decision whom to draft for are native (`_native.Planner`). What steps take is
learned by `StepCosts`; this module turns it into the prices that decisions are made with.
"""

from __future__ import annotations

import time
from array import array
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from specserve.api import DraftPlanner, PlannerStats
from specserve.api.drafts import keep
from specserve_adaptive._native import MOST_SLOWDOWN, Planner
from specserve_adaptive.competition import Competition
from specserve_adaptive.observer import cost_metrics, decision_metrics
from specserve_adaptive.plain_steps import PlainSteps
from specserve_adaptive.regimes import Regimes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from specserve.api import Draft, Metric, Verdict
    from specserve.api.batch import Request, ScheduledBatch
    from specserve_adaptive.step_costs import StepCosts

MIN_GAIN = 0.005
"""Gain, in logarithms of one request's speed, below which nothing is verified: it lies within the estimates' error."""
FIRST_DRAFT_TOKENS, TOKENS_RATE = 3.0, 0.1
"""Draft tokens of a request, for the time that one takes: before any is verified, and the rate of their moving
average."""
FIRST_STEPS, COSTS_INTERVAL = 64, 3
"""The first steps with draft tokens, all of which teach what they take, and the interval of later ones that do."""
PRICES_INTERVAL, GUESSES_PER_STEP = 16, 8
"""Steps after which prices are computed anew: more where there is a price for many numbers of draft tokens, so that
on average a step has GUESSES_PER_STEP of them to compute."""
FIRST_PRICES = 256
"""Numbers of draft tokens that are priced at first, or as many as the requests can have; more only where a step with
that many is not too long yet."""


class RankedPlanner(DraftPlanner):
    """Decides anew in every step, from what it learned."""

    def __init__(
        self,
        max_draft_tokens: int,
        costs: StepCosts,
        objective: Literal["fair", "throughput", "latency"] = "fair",
        drafters: Sequence[str] = (),
    ) -> None:
        self.max_draft_tokens, self.objective = max_draft_tokens, objective
        self.costs: StepCosts = costs
        self.regimes, self.plain_steps = Regimes(costs), PlainSteps()
        self.bounds_depth = len(drafters) == 1
        """Of several drafters the costs of each are not told apart here: they bound their depth themselves."""
        self.native = Planner(objective, MIN_GAIN)
        self.composer = Competition(self.native, costs, scores_all=False)
        self.tokens_per_draft = FIRST_DRAFT_TOKENS
        """Verified ones, a moving average."""
        self.num_steps, self.num_drafting, self.own_seconds = 0, 0, 0.0
        """Requests that are drafted for in this step, and what learning from the step before and choosing for this one
        took: a part of what drafting takes."""
        self.drafted_before = False
        """Whether any were in the step before."""
        self.prices = (0.0, 0.0, 0.0)
        """Seconds that an accepted draft token saves, that a verified one takes, and that a plain step takes."""
        self.priced_for, self.priced_until = 0, 0
        """The number of requests that `prices` are for, and the step that computes them anew."""
        self.curves: dict[tuple[int, int, bool], tuple[int, array[float]]] = {}
        """By rows without draft tokens, requests and regime: the step of the computation, and seconds by draft
        tokens."""

    def limits(self, requests: Sequence[Request]) -> list[int]:
        """0 for requests that are not drafted for."""
        self.num_steps += 1
        count = len(requests)
        if count != self.priced_for or self.num_steps >= self.priced_until:
            self.prices = self.current_prices(count)
            # until such a step was observed, prices come from the table alone, which was measured with one request
            lasting = PRICES_INTERVAL if self.costs.knows(count) else 1
            self.priced_for, self.priced_until = count, self.num_steps + lasting
        if self.plain_steps.wanted(count, self.native.usual_gain()):
            limits = self.native.measure(requests, self.max_draft_tokens)
        else:
            limits = self.native.limits(requests, self.max_draft_tokens, *self.prices)
        self.drafted_before = self.num_drafting > 0
        self.num_drafting = count - limits.count(0)
        return limits

    def idle_steps(self) -> int:
        return self.native.idle_steps()

    def observe_idle(self, batch: ScheduledBatch, seconds: Sequence[float]) -> None:
        self.num_steps += len(seconds)
        self.native.skip(len(seconds))
        self.regimes.follows_drafts = False
        self.regimes.observe(batch, median(seconds), drafting=False)
        self.plain_steps.ran(len(batch.spans), drafts=False)

    def current_prices(self, num_requests: int) -> tuple[float, float, float]:
        if not num_requests:
            return 0.0, 0.0, 0.0
        draft_tokens = max(1, round(self.tokens_per_draft * num_requests))
        plain = self.costs.seconds(num_requests, num_requests)
        drafted = self.costs.seconds(num_requests + draft_tokens, num_requests, draft_tokens)
        return plain / num_requests, (drafted - plain) / draft_tokens, plain

    def observe_drafting(self, seconds: float, num_requests: int, pass_seconds: float) -> None:
        self.native.observe_drafting(seconds + self.own_seconds, num_requests, pass_seconds)

    def choose(self, requests: Sequence[Request], budget: int, base_rows: int) -> list[Draft | int | None]:
        began = time.perf_counter()
        budget = max(budget, 0)
        curve = self.curve(base_rows, requests, budget)
        chosen = self.native.choose(requests, curve, min(budget, len(curve) - 1))
        verified = [cut(r.draft, nodes) for r, nodes in zip(requests, chosen, strict=True)]
        self.own_seconds += time.perf_counter() - began
        return verified

    def curve(self, rows: int, requests: Sequence[Request], budget: int) -> array[float]:
        """What steps of `rows` rows and 0, 1, ... draft tokens take: of all that these requests have, within the
        budget, or as many as make a step too long."""
        count = len(requests)
        place = rows, count, self.regimes.follows_drafts
        computed, curve = self.curves.get(place, (0, None))
        if curve is None or self.num_steps >= computed + interval(len(curve)):
            if len(self.curves) > 64:
                self.curves.clear()
            curve = self.priced(rows, count, min(max(budget, 16), FIRST_PRICES, count * self.max_draft_tokens))
        if is_short(curve, budget):
            max_draft_tokens = min(budget, sum(len(r.draft.tokens) for r in requests if r.draft is not None))
            if is_short(curve, max_draft_tokens):
                curve = self.priced(rows, count, max_draft_tokens)
        return curve

    def priced(self, rows: int, requests: int, max_draft_tokens: int) -> array[float]:
        curve = array("d", self.regimes.by_draft_tokens(rows, requests, max_draft_tokens))
        self.curves[rows, requests, self.regimes.follows_drafts] = self.num_steps, curve
        return curve

    def request_stats(self, request_id: str) -> PlannerStats | None:
        numbers = self.native.request_stats(request_id)
        return None if numbers is None else PlannerStats(numbers["steps"], numbers["predicted"])

    def describe(self) -> dict[str, Any]:
        stats = self.native.stats()
        errors = {str(requests): error for requests, error in self.costs.usual_errors().items()}
        return {"mode": "ranked", "objective": self.objective, **stats, "step_cost_errors": errors}

    def metrics(self) -> Iterator[Metric]:
        yield from decision_metrics(self.native)
        yield from cost_metrics(self.costs)

    def learn(self, batch: ScheduledBatch, verdict: Verdict, seconds: float) -> None:
        began = time.perf_counter()
        self.native.learn(batch.spans, verdict.spans)
        num_drafts = sum(span.drafted > 0 for span in batch.spans)
        if batch.only_decodes and (num_drafts or not (self.drafted_before or self.regimes.follows_drafts)):
            self.plain_steps.ran(len(batch.spans), drafts=num_drafts > 0)
        if not num_drafts or self.num_steps <= FIRST_STEPS or self.num_steps % COSTS_INTERVAL == 0:
            self.regimes.observe(batch, seconds, drafting=self.drafted_before)
        self.regimes.follows_drafts = num_drafts > 0
        if num_drafts:
            drafted = sum(span.drafted for span in batch.spans) / num_drafts
            self.tokens_per_draft += TOKENS_RATE * (drafted - self.tokens_per_draft)
        # set, not added: after steps with prompts nothing was drafted or nobody says how long it took
        is_for_drafts = num_drafts or self.drafted_before
        self.own_seconds = time.perf_counter() - began if is_for_drafts else 0.0


def is_short(curve: Sequence[float], max_draft_tokens: int) -> bool:
    """Whether it ends before `max_draft_tokens`, and before steps are too long."""
    return len(curve) <= max_draft_tokens and curve[-1] <= MOST_SLOWDOWN * curve[0]


def interval(num_prices: int) -> int:
    """Steps after which as many prices are computed anew."""
    return max(PRICES_INTERVAL, num_prices // GUESSES_PER_STEP)


def cut(draft: Draft | None, nodes: int | list[int] | None) -> Draft | int | None:
    """The first `nodes` nodes of the draft, or those in the list."""
    if isinstance(nodes, list):
        return None if draft is None else keep(draft, nodes)
    return nodes
