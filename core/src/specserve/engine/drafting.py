"""Asks the drafters after each step and gives each request its best draft for the next.

Several drafters compose. The cheapest, as measured, is asked first; a costlier one only for requests where the draft
tokens that it may add save more time than it takes: the more tokens a step gives without it, the less one saves. Their
drafts are merged into one tree. All proposals are scored against the tokens that the target then gave, verified or not.
A drafter that was not asked for many steps is asked once anyway, so that its first misses do not exclude it for good.
Guards keep faults away from the requests.
"""

from __future__ import annotations

import time
from math import inf
from typing import TYPE_CHECKING, NamedTuple, cast

from specserve.batch.drafts import ROOT, match, parents_of
from specserve.speculation.merging import Estimated, merge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from specserve.batch.batch import Batch
    from specserve.batch.request import Request
    from specserve.guards.drafter import GuardedDrafter
    from specserve.protocols import DraftPlanner, PausingPlanner, SurvivalEstimates
    from specserve.types import Draft, ForwardOutput, Verdict

STEP_RATE, PACE_RATE = 0.05, 0.2
"""Of the moving averages of step times and of tokens per step."""


class NoDraft:
    """No drafter is enabled: plain decoding."""

    def start(self, request: Request) -> None:
        pass

    def draft(self, batch: Batch, output: ForwardOutput, verdict: Verdict, seconds: float) -> None:
        pass

    def learn(self, batch: Batch, verdict: Verdict, seconds: float) -> None:
        pass

    def stop(self, request: Request) -> None:
        pass


class Pause:
    """Steps in which nobody is to be asked and the planner need not be called, as long as the same requests run."""

    __slots__ = ("batch", "left", "num_requests", "seconds")

    def __init__(self) -> None:
        self.left = self.num_requests = 0
        self.batch: Batch | None = None
        """The last that ran without the planner."""
        self.seconds: list[float] = []
        """Of each that did."""

    def begin(self, num_requests: int, steps: int) -> None:
        self.left, self.num_requests = steps, num_requests

    def goes_on(self, batch: Batch) -> bool:
        """A request that begins has a prompt or changes their number; `Drafting.stop` ends the pause where one ends."""
        if self.left and batch.num_rows == len(batch.spans) == self.num_requests:
            self.left -= 1
            self.batch = batch
            return True
        self.left = 0
        return False

    def end(self, planner: DraftPlanner) -> None:
        """Tell the planner of the steps that ran without it."""
        if self.batch is not None:
            cast("PausingPlanner", planner).paused(self.batch, self.seconds)
        self.batch, self.seconds = None, []


class Proposal(NamedTuple):
    """What a drafter proposed for a request."""

    guard: GuardedDrafter
    draft: Draft


class Drafting:
    """One or several guarded drafters. `calibration`: where the planner shares it, it learns there of the drafts that
    it is given; the parts of merged ones are learned here."""

    def __init__(self, guards: Sequence[GuardedDrafter], planner: DraftPlanner, calibration: SurvivalEstimates) -> None:
        self.guards, self.planner, self.calibration = guards, planner, calibration
        self.scores_all = getattr(planner, "calibration", None) is not calibration
        """Whether the planner leaves it to this object to learn of all drafts."""
        self.attentive = [guard for guard in guards if guard.hears_every_step]
        self.pause = Pause()
        self.proposals: dict[str, list[Proposal]] = {}
        """The drafts proposed after the last step, by request id; kept only where several drafters compete and another
        than the cheapest was asked."""
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
        self.pause.left = 0
        self.proposals.pop(request.id, None)
        pace = self.pace.pop(request.id, self.mean_pace)
        self.mean_pace += PACE_RATE * (pace - self.mean_pace)
        for guard in self.guards:
            guard.stop(request)

    def draft(self, batch: Batch, output: ForwardOutput, verdict: Verdict, seconds: float) -> None:
        if self.pause.goes_on(batch):
            for guard in self.attentive:
                guard.hear(batch, output, verdict)
            return
        self.pause.end(self.planner)
        # not by the verdict alone: committing has ended a request whose processor failed
        requests = [span.request for span in batch.spans]
        live = [i for i, span in enumerate(verdict.spans) if span.tokens and requests[i].finish_reason is None]
        began, recording = time.perf_counter(), self.recording_seconds
        planned = self.planner.limits([requests[i] for i in live])
        if not any(planned) and not self.proposals and batch.num_rows == len(batch.spans):  # every request backs off
            for guard in self.guards:
                guard.hear(batch, output, verdict)
            self.pause.begin(len(live), getattr(self.planner, "pause", 0))
            return
        limits = [0] * len(batch.spans)
        for i, limit in zip(live, planned, strict=True):
            limits[i] = limit
        guards = self.guards
        if len(guards) == 1:
            best = guards[0].propose(batch, output, verdict, limits)
        else:
            self.score(batch, verdict)
            if batch.only_decodes:
                self.measure_step(seconds)
            guards = sorted((guard for guard in guards if guard.enabled), key=lambda guard: guard.seconds_per_draft)
            best = self.compete(guards, batch, output, verdict, limits)
        for i in live:
            requests[i].draft = best[i]
        tell: Callable[[float, int, float], None] | None = getattr(self.planner, "asked", None)
        if tell is not None and any(planned) and batch.only_decodes:  # a draft model may read prompts
            # the cheapest is asked wherever any is; the others only where they pay for themselves
            seconds = time.perf_counter() - began - sum(guard.seconds for guard in guards[1:])
            seconds -= self.recording_seconds - recording
            pass_seconds = guards[0].pass_seconds if len(self.guards) == 1 else 0.0
            tell(seconds, sum(limit > 0 for limit in planned), pass_seconds)

    @property
    def recording_seconds(self) -> float:
        """Spent on recording graphs so far."""
        return self.guards[0].metrics.graph_recording_seconds

    def learn(self, batch: Batch, verdict: Verdict, seconds: float) -> None:
        """Let the planner learn from the step, unless it pauses."""
        if self.pause.batch is None:
            self.planner.learn(batch, verdict, seconds)
        else:
            self.pause.seconds.append(seconds)

    def compete(
        self,
        guards: Sequence[GuardedDrafter],
        batch: Batch,
        output: ForwardOutput,
        verdict: Verdict,
        limits: Sequence[int],
    ) -> list[Draft | None]:
        """For each request the drafts of all drafters that were worth asking, as one tree. `guards`: the cheapest
        first."""
        found: list[list[Proposal]] = [[] for _ in limits]
        for place, guard in enumerate(guards):
            asked = list(limits)
            if place and not guard.is_due(len(limits), self.step_seconds):
                asked = self.worth_asking(guard, batch, limits, found)
            for i, draft in enumerate(guard.propose(batch, output, verdict, asked)):
                if draft is not None:
                    found[i].append(Proposal(guard, draft))
        for span, each in zip(batch.spans, found, strict=True):
            if each and (self.scores_all or each[-1].guard is not guards[0]):
                self.proposals[span.request.id] = each
        requests = (span.request for span in batch.spans)
        return [self.merged(*each) for each in zip(requests, found, limits, strict=True)]

    def worth_asking(
        self, guard: GuardedDrafter, batch: Batch, limits: Sequence[int], found: Sequence[Sequence[Proposal]]
    ) -> list[int]:
        """The limits of those requests for which the drafter may add more than it costs; 0 of the others."""
        cost = guard.seconds_per_draft * len(limits) / self.step_seconds if self.step_seconds else 0.0
        asked = []
        for span, limit, proposals in zip(batch.spans, limits, found, strict=True):
            own = guard.hits.expected(span.request.id)
            least = cost * self.pace_without(own, span.request.id)
            is_worth = limit > 0 and own > least and self.expected_gain(span.request, own, proposals) > least
            asked.append(limit if is_worth else 0)
        return asked

    def merged(self, request: Request, proposals: Sequence[Proposal], limit: int) -> Draft | None:
        if len(proposals) < 2:
            return proposals[0].draft if proposals else None
        return merge([Estimated(draft, self.calibration.survival(draft, request)) for _, draft in proposals], limit)

    def measure_step(self, seconds: float) -> None:
        """An outlier counts as twice the average."""
        if self.step_seconds:
            seconds = min(seconds, 2 * self.step_seconds)
            self.step_seconds += STEP_RATE * (seconds - self.step_seconds)
        else:
            self.step_seconds = seconds

    def pace_without(self, own: float, request_id: str) -> float:
        """Tokens that a step would give this request, about, without a drafter that adds `own` of them."""
        return 1.0 if own == inf else max(1.0, self.pace.get(request_id, self.mean_pace) - own)

    def expected_gain(self, request: Request, own: float, proposals: Sequence[Proposal]) -> float:
        """Accepted tokens that a draft with `own` right ones may add to the proposals. Where their first token is wrong
        it counts in full, elsewhere as far as it goes beyond them."""
        if own == inf:
            return inf
        first_is_right = expected = 0.0
        for _, draft in proposals:
            survival = self.calibration.survival(draft, request)
            roots = sum(s for s, parent in zip(survival, parents_of(draft), strict=True) if parent == ROOT)
            first_is_right = max(first_is_right, min(roots, 1.0))
            expected = max(expected, sum(survival))
        return own * (1 - first_is_right) + max(0.0, own - expected) * first_is_right

    def score(self, batch: Batch, verdict: Verdict) -> None:
        """Score the last proposals against the tokens that the target gave."""
        for span, decided in zip(batch.spans, verdict.spans, strict=True):
            if decided.tokens:
                request_id = span.request.id
                pace = self.pace.get(request_id, self.mean_pace)
                self.pace[request_id] = pace + PACE_RATE * (len(decided.tokens) - pace)
                proposals = self.proposals.pop(request_id, ())
                for guard, draft in proposals:
                    if len(proposals) > 1 or self.scores_all:
                        self.calibration.observe(draft, span.request, decided.tokens)
                    survival = self.calibration.survival(draft, span.request)
                    guard.hits.add(request_id, right_tokens(draft, survival, decided.tokens))


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
