"""How much of what was guessed to verify: the default planner.

With s the survival of a guess, verifying a set of guesses gives (requests + sum of s) tokens in the time
that a step of that many rows takes. Sorted by survival, every prefix of the batch's guesses is closed under
parents, so the best prefix is the best choice; none at all is allowed. The time comes from a table
measured on this machine at start-up and refined as steps run; survival from the drafter, corrected by what
was observed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.speculation.trees import keep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.batch import Batch
    from specserve.request import Request
    from specserve.speculation.calibration import Calibration
    from specserve.speculation.costs import StepCosts
    from specserve.types import Draft, Verdict

WORTHWHILE = 0.02
"""Gain below which drafting is not worth its own time at every step."""
REST = 8
"""Steps per draft then: what a guess costs before anybody verifies it becomes negligible."""
GAIN_MEMORY = 0.9
PROBE_EVERY = 32
"""Steps after which a drafter that never pays is tried once more, so that the tables go on learning."""


def most_useful(request: Request, max_draft_tokens: int) -> int:
    """Nodes that could still help: the request's own limit, and none in its last step, whose bonus is enough."""
    wish = request.speculation
    if not wish.enabled:
        return 0
    own = max_draft_tokens if wish.max_draft_tokens is None else min(max_draft_tokens, wish.max_draft_tokens)
    return own if request.max_len - len(request.tokens) > 1 else 0


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
    """Maximises expected tokens per second."""

    def __init__(self, max_draft_tokens: int, costs: StepCosts, calibration: Calibration) -> None:
        self.max_draft_tokens, self.costs, self.calibration = max_draft_tokens, costs, calibration
        self.idle_steps = self.turn = 0
        self.gain = 1.0
        """By how much guesses raise the tokens per second, a moving average over the steps that drafted; hopeful at
        first, and where a drafter states no survival, since its being right is found out by asking only."""

    def limits(self, requests: Sequence[Request]) -> list[int]:
        """Nobody is asked in most steps while guesses bring next to nothing."""
        self.turn += 1
        if self.gain < WORTHWHILE and self.turn % REST:
            return [0] * len(requests)
        self.gain *= GAIN_MEMORY
        return [most_useful(request, self.max_draft_tokens) for request in requests]

    def choose(self, requests: Sequence[Request], budget: int, base_rows: int) -> list[Draft | None]:
        ranked = sorted(
            (-s, at, node)
            for at, request in enumerate(requests)
            if request.draft is not None
            for node, s in enumerate(self.calibration.survival(request.draft))
        )[: max(budget, 0)]
        if not ranked:
            return [None] * len(requests)
        if any(request.draft is not None and request.draft.survival is None for request in requests):
            self.gain = 1.0
        count = self.best_count([-s for s, _, _ in ranked], len(requests), base_rows)
        nodes: list[list[int]] = [[] for _ in requests]
        for _, at, node in ranked[:count]:
            nodes[at].append(node)
        return [
            keep(request.draft, chosen) if request.draft is not None else None
            for request, chosen in zip(requests, nodes, strict=True)
        ]

    def best_count(self, survival: Sequence[float], num_requests: int, base_rows: int) -> int:
        """How many of the sorted guesses give the most tokens per second."""
        plain_rate = num_requests / self.costs.seconds(base_rows)
        best, best_rate, expected = 0, plain_rate, float(num_requests)
        for count, s in enumerate(survival, 1):
            expected += s
            rate = expected / self.costs.seconds(base_rows + count)
            if rate > best_rate:
                best, best_rate = count, rate
        self.gain += (1 - GAIN_MEMORY) * (best_rate / plain_rate - 1)
        if best:
            self.idle_steps = 0
            return best
        self.idle_steps += 1
        return 1 if self.idle_steps % PROBE_EVERY == 0 else 0

    def learn(self, batch: Batch, verdict: Verdict, seconds: float) -> None:
        self.costs.observe(batch, seconds)
        for span, decided in zip(batch.spans, verdict.spans, strict=True):
            if span.proposed is not None and decided.tokens:
                self.calibration.observe(span.proposed, decided.tokens)
