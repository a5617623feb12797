"""How much of what was guessed to verify: the default planner.

With s the survival of a guess, a request whose guesses have the sum S gets 1 + S tokens in the time that a step
of that many rows takes. What is maximised is the sum of the logarithms of the requests' speeds, which is fair in
proportion (Kelly, 1997): a step may take longer for all only as far as those who guess gain more than the others
lose. Sorted by what they add, every prefix of the batch's guesses is closed under parents, so the best prefix is
the best choice; none at all is allowed. The time comes from a table measured on this machine at start-up and from
what real steps add to it; survival from the drafter, corrected by what was observed.
"""

from __future__ import annotations

import time
from itertools import accumulate
from math import log
from operator import sub
from typing import TYPE_CHECKING

from specserve.batch.drafts import keep
from specserve.speculation.asking import Asking

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.batch.batch import Batch
    from specserve.batch.request import Request
    from specserve.speculation.calibration import Calibration
    from specserve.speculation.costs import StepCosts
    from specserve.types import Draft, Verdict

WORTHWHILE = 0.02
"""Gain, as a share of one request's speed, below which nothing is verified: it lies within the estimates' error."""
SELDOM = 4
"""Steps per plain step that is learned from while nobody is asked."""
PROBE_EVERY = 32
"""Steps after which a drafter that never pays is tried once more, so that the tables go on learning."""


def most_useful(request: Request, max_draft_tokens: int) -> int:
    """Nodes that could still help: the request's own limit, and none in its last step, whose bonus is enough."""
    wish = request.speculation
    if not wish.enabled:
        return 0
    own = max_draft_tokens if wish.max_draft_tokens is None else min(max_draft_tokens, wish.max_draft_tokens)
    return own if request.max_len - len(request.tokens) > 1 else 0


def gains(survival: Sequence[float]) -> list[tuple[float, int]]:
    """(what the guess adds to the logarithm of its request's tokens, node), each beside those that survive rather."""
    found, tokens = [], 1.0
    for node in sorted(range(len(survival)), key=lambda node: (-survival[node], node)):
        found.append((log((tokens + survival[node]) / tokens), node))
        tokens += survival[node]
    return found


class VerifyAll:
    """Verifies whatever is proposed, as far as the budget goes: for tests and for measuring drafters."""

    def __init__(self, max_draft_tokens: int) -> None:
        self.max_draft_tokens = max_draft_tokens

    def limits(self, requests: Sequence[Request]) -> list[int]:
        return [most_useful(request, self.max_draft_tokens) for request in requests]

    def choose(self, requests: Sequence[Request], budget: int, base_rows: int) -> list[Draft | None]:
        chosen: list[Draft | None] = []
        for request in requests:
            draft = request.draft and keep(request.draft, range(min(budget, len(request.draft.tokens))))
            budget -= len(draft.tokens) if draft else 0
            chosen.append(draft)
        return chosen

    def learn(self, batch: Batch, verdict: Verdict, seconds: float) -> None:
        pass


class CostPlanner:
    """Maximises the expected speeds of all requests, in proportion."""

    def __init__(self, max_draft_tokens: int, costs: StepCosts, calibration: Calibration) -> None:
        self.max_draft_tokens, self.costs, self.calibration = max_draft_tokens, costs, calibration
        self.asking = Asking()
        self.idle_steps = 0
        self.num_asked, self.asking_since, self.choosing_seconds = 0, 0.0, 0.0
        """Of this step's asking, which ends when the step's verdict is learned, and of choosing among the answers."""

    def limits(self, requests: Sequence[Request]) -> list[int]:
        """0 for a request that asking does not pay for, in most steps."""
        self.asking_since = time.perf_counter()
        asked = self.asking.whom(requests)
        most, self.num_asked = self.max_draft_tokens, 0
        if not any(asked):
            return [0] * len(requests)
        limits = [most_useful(request, most) if yes else 0 for request, yes in zip(requests, asked, strict=True)]
        self.num_asked = sum(limit > 0 for limit in limits)
        return limits

    def choose(self, requests: Sequence[Request], budget: int, base_rows: int) -> list[Draft | None]:
        began = time.perf_counter()
        ranked = sorted(
            (-gain, at, node)
            for at, request in enumerate(requests)
            if request.draft is not None
            for gain, node in gains(self.calibration.survival(request.draft))
        )[: max(budget, 0)]
        if not ranked:
            return [None] * len(requests)
        for request in requests:
            if request.draft is not None and request.draft.survival is None:
                self.asking.hope(request.id)  # being right is found out by asking only
        count = self.best_count([-gain for gain, _, _ in ranked], len(requests), base_rows)
        nodes: list[list[int]] = [[] for _ in requests]
        for _, at, node in ranked[:count]:
            nodes[at].append(node)
        chosen = [
            keep(request.draft, chosen) if request.draft is not None else None
            for request, chosen in zip(requests, nodes, strict=True)
        ]
        self.choosing_seconds = time.perf_counter() - began
        return chosen

    def best_count(self, gained: Sequence[float], num_requests: int, base_rows: int) -> int:
        """How many of the sorted guesses give the best speeds; `gained`: what each adds to the logarithm of one."""
        seconds = self.costs.by_guesses(base_rows, num_requests, len(gained))
        lost = [num_requests * log(each / seconds[0]) for each in seconds]
        speeds = list(map(sub, accumulate(gained, initial=0.0), lost))
        best = speeds.index(max(speeds))
        if speeds[best] > WORTHWHILE:
            self.idle_steps = 0
            return best
        self.idle_steps += 1
        return 1 if self.idle_steps % PROBE_EVERY == 0 else 0

    def learn(self, batch: Batch, verdict: Verdict, seconds: float) -> None:
        drafted = batch.num_rows > len(batch.spans)
        if drafted or self.num_asked or self.asking.turn % SELDOM == 0:
            self.costs.observe(batch, seconds)
        if drafted:
            self.credit(batch, verdict)
        for span, decided in zip(batch.spans, verdict.spans, strict=True):
            if span.proposed is not None and decided.tokens:
                self.calibration.observe(span.proposed, decided.tokens)
            if decided.finish_reason is not None:
                self.asking.forget(span.request.id)
        if self.num_asked:
            spent = time.perf_counter() - self.asking_since + self.choosing_seconds
            self.asking.cost(spent, self.num_asked)
            self.choosing_seconds = 0.0

    def credit(self, batch: Batch, verdict: Verdict) -> None:
        """An accepted guess saved the time that plain steps need for a token; a verified one cost its row."""
        num_requests, costs = len(batch.spans), self.costs
        guesses = sum(span.drafted for span in batch.spans)
        if not guesses:
            return
        per_token = costs.seconds(num_requests, num_requests) / num_requests
        rows = batch.num_rows
        per_guess = (costs.seconds(rows, num_requests, guesses) - costs.seconds(rows - guesses, num_requests)) / guesses
        for span, decided in zip(batch.spans, verdict.spans, strict=True):
            if span.drafted:
                accepted = len(decided.path)
                self.asking.credit(span.request.id, accepted * per_token - span.drafted * per_guess)
                if accepted:
                    self.asking.hope(span.request.id)
