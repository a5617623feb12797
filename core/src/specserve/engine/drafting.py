"""Asks the drafters after each step and gives each request its best draft for the next.

Several drafters compose. The cheapest, as measured, is asked first; a costlier one only for requests where the draft
tokens that it may add save more time than it takes: the more tokens a step gives without it, the less one saves. Their
drafts are merged into one tree. All proposals are scored against the tokens that the target then gave, verified or not.
A drafter that was not asked for many steps is asked once anyway, so that its first misses do not exclude it for good.
Guards keep faults away from the requests.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

from specserve.batch.drafts import ROOT, match, parents_of
from specserve.speculation.calibration import Calibration
from specserve.speculation.merging import Estimated, merge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.batch.batch import Batch
    from specserve.batch.request import Request
    from specserve.guards.drafter import GuardedDrafter
    from specserve.protocols import DraftPlanner
    from specserve.types import Draft, ForwardOutput, Verdict

STEP_RATE, PACE_RATE = 0.05, 0.2
"""Of the moving averages of step times and of tokens per step."""


class NoDraft:
    """No drafter is enabled: plain decoding."""

    def start(self, request: Request) -> None:
        pass

    def draft(self, batch: Batch, output: ForwardOutput, verdict: Verdict, seconds: float) -> None:
        pass

    def stop(self, request: Request) -> None:
        pass


class Proposal(NamedTuple):
    """What a drafter proposed for a request."""

    guard: GuardedDrafter
    estimated: Estimated


class Drafting:
    """One or several guarded drafters."""

    def __init__(self, guards: Sequence[GuardedDrafter], planner: DraftPlanner) -> None:
        self.guards, self.planner = guards, planner
        self.calibration = Calibration()
        self.proposals: dict[str, list[Proposal]] = {}
        """The drafts proposed after the last step, by request id; kept only when several drafters compete."""
        self.pace: dict[str, float] = {}
        """Tokens that a step gave each request, moving averages; kept only when several drafters compete."""
        self.mean_pace = 1.0
        """Over the last requests that ended."""
        self.step_seconds = 0.0
        """What a step without prompts takes before it is drafted for, a moving average."""

    def start(self, request: Request) -> None:
        for guard in self.guards:
            guard.start(request)

    def stop(self, request: Request) -> None:
        self.proposals.pop(request.id, None)
        pace = self.pace.pop(request.id, self.mean_pace)
        self.mean_pace += PACE_RATE * (pace - self.mean_pace)
        for guard in self.guards:
            guard.stop(request)

    def draft(self, batch: Batch, output: ForwardOutput, verdict: Verdict, seconds: float) -> None:
        # not by the verdict alone: committing has ended a request whose processor failed
        requests = [span.request for span in batch.spans]
        live = [i for i, span in enumerate(verdict.spans) if span.tokens and requests[i].finish_reason is None]
        planned = self.planner.limits([requests[i] for i in live])
        if not self.proposals and not any(planned):  # most steps while every request backs off
            for guard in self.guards:
                guard.propose(batch, output, verdict, [0] * len(batch.spans))
            return
        limits = [0] * len(batch.spans)
        for i, limit in zip(live, planned, strict=True):
            limits[i] = limit
        if len(self.guards) == 1:
            best = self.guards[0].propose(batch, output, verdict, limits)
        else:
            self.score(batch, verdict)
            if batch.only_decodes:
                self.measure_step(seconds)
            best = self.compete(batch, output, verdict, limits)
        for i in live:
            requests[i].draft = best[i]

    def compete(
        self, batch: Batch, output: ForwardOutput, verdict: Verdict, limits: Sequence[int]
    ) -> list[Draft | None]:
        """For each request the drafts of all drafters that were worth asking, as one tree."""
        found: list[list[Proposal]] = [[] for _ in limits]
        for place, guard in enumerate(sorted(self.guards, key=lambda g: g.seconds_per_draft)):
            asked = list(limits)
            if place and not guard.is_due(len(limits), self.step_seconds):
                cost = guard.seconds_per_draft * len(limits) / self.step_seconds if self.step_seconds else 0.0
                ids = [span.request.id for span in batch.spans]
                asked = [
                    limit if expected_gain(guard, ids[i], found[i]) > cost * self.pace_without(guard, ids[i]) else 0
                    for i, limit in enumerate(limits)
                ]
            for i, draft in enumerate(guard.propose(batch, output, verdict, asked)):
                if draft is not None:
                    found[i].append(Proposal(guard, Estimated(draft, self.calibration.survival(draft))))
        self.proposals.update((batch.spans[i].request.id, each) for i, each in enumerate(found) if each)
        return [merge([p.estimated for p in each], limits[i]) if each else None for i, each in enumerate(found)]

    def measure_step(self, seconds: float) -> None:
        """An outlier counts as twice the average."""
        if self.step_seconds:
            seconds = min(seconds, 2 * self.step_seconds)
            self.step_seconds += STEP_RATE * (seconds - self.step_seconds)
        else:
            self.step_seconds = seconds

    def pace_without(self, guard: GuardedDrafter, request_id: str) -> float:
        """Tokens that a step would give this request without this drafter, about."""
        own = guard.hits.expected(request_id)
        return 1.0 if own == inf else max(1.0, self.pace.get(request_id, self.mean_pace) - own)

    def score(self, batch: Batch, verdict: Verdict) -> None:
        """Score the last proposals against the tokens that the target gave."""
        for span, decided in zip(batch.spans, verdict.spans, strict=True):
            if decided.tokens:
                pace = self.pace.get(span.request.id, self.mean_pace)
                self.pace[span.request.id] = pace + PACE_RATE * (len(decided.tokens) - pace)
                for guard, (draft, survival) in self.proposals.pop(span.request.id, ()):
                    self.calibration.observe(draft, decided.tokens)
                    guard.hits.add(span.request.id, right_tokens(draft, survival, decided.tokens))


def expected_gain(guard: GuardedDrafter, request_id: str, proposals: Sequence[Proposal]) -> float:
    """Accepted tokens that this drafter's draft may add to the proposals. Where their first token is wrong it counts
    in full, elsewhere as far as it goes beyond them."""
    own = guard.hits.expected(request_id)
    if own == inf:
        return inf
    first_is_right = expected = 0.0
    for _, (draft, survival) in proposals:
        roots = sum(s for s, parent in zip(survival, parents_of(draft), strict=True) if parent == ROOT)
        first_is_right = max(first_is_right, min(roots, 1.0))
        expected = max(expected, sum(survival))
    return own * (1 - first_is_right) + max(0.0, own - expected) * first_is_right


def right_tokens(draft: Draft, survival: Sequence[float], tokens: Sequence[int]) -> float:
    """How many draft tokens along one path were right. What lies behind the last known token counts as estimated."""
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
