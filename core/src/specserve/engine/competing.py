"""Several drafters at once: which of them are asked for which requests, and what becomes of their drafts.

The cheapest, as measured, is asked first; a costlier one only for requests where the draft tokens that it may add save
more time than asking for them and verifying them takes: the more tokens a step gives without it, the less one saves.
A drafter that knows what must come is asked before all, and what follows that is drafted by those that can go on from
its end. Their drafts are merged into one tree. All proposals are scored against the tokens that the target then gave,
verified or not. A drafter that was not asked for many steps is asked once anyway, so that its first misses do not
exclude it for good.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from specserve.batch.drafts import ROOT, parents_of, sources_of
from specserve.engine.proposals import Proposal, certain_tokens, right_tokens
from specserve.speculation.merging import Estimated, merge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.batch.batch import Batch
    from specserve.batch.request import Request
    from specserve.batch.span import Span
    from specserve.guards.drafter import GuardedDrafter
    from specserve.protocols import SurvivalEstimates, TargetCosts
    from specserve.types import Draft, ForwardOutput, Verdict

STEP_RATE, PACE_RATE = 0.05, 0.2
"""Of the moving averages of step times and of tokens per step."""


class Competition:
    """`scores_all`: whether the only draft of a request is scored here, too; else the planner does that. `costs`: None
    where the planner tells none, and draft tokens count as free."""

    def __init__(self, calibration: SurvivalEstimates, costs: TargetCosts | None, *, scores_all: bool) -> None:
        self.calibration, self.costs, self.scores_all = calibration, costs, scores_all
        self.proposals: dict[str, list[Proposal]] = {}
        """The drafts proposed after the last step, by request id; kept only where another drafter than the cheapest was
        asked."""
        self.pace: dict[str, float] = {}
        """Tokens that a step gave each request, moving averages."""
        self.mean_pace = 1.0
        """Over the last requests that ended."""
        self.step_seconds = 0.0
        """What a step without prompts takes before it is drafted for, a moving average."""

    def stop(self, request: Request) -> None:
        self.proposals.pop(request.id, None)
        pace = self.pace.pop(request.id, self.mean_pace)
        self.mean_pace += PACE_RATE * (pace - self.mean_pace)

    def observe(self, batch: Batch, verdict: Verdict, seconds: float) -> None:
        """The step that the last proposals were for. A request that ended with it is stopped already."""
        for span, decided in zip(batch.spans, verdict.spans, strict=True):
            if decided.tokens and span.request.finish_reason is None:
                self.score(span, decided.tokens)
        if batch.only_decodes:
            self.measure_step(seconds)

    def score(self, span: Span, tokens: Sequence[int]) -> None:
        """Score the last proposals against the tokens that the target gave."""
        request_id = span.request.id
        pace = self.pace.get(request_id, self.mean_pace)
        self.pace[request_id] = pace + PACE_RATE * (len(tokens) - pace)
        proposals = self.proposals.pop(request_id, ())
        sources = sources_of(span.draft) if proposals and span.draft is not None else ()
        for proposal in proposals:
            guard, own, followers = proposal.guard, proposal.own, proposal.followers(tokens)
            if followers is None:
                continue
            if len(proposals) > 1 or self.scores_all:
                self.calibration.observe(own, span.request, followers)
            survival = self.calibration.survival(own, span.request)
            guard.hits.add(request_id, right_tokens(own, survival, followers), sources.count(guard.name))

    def measure_step(self, seconds: float) -> None:
        """An outlier counts as twice the average."""
        if self.step_seconds:
            seconds = min(seconds, 2 * self.step_seconds)
            self.step_seconds += STEP_RATE * (seconds - self.step_seconds)
        else:
            self.step_seconds = seconds

    def propose(
        self,
        guards: Sequence[GuardedDrafter],
        batch: Batch,
        output: ForwardOutput,
        verdict: Verdict,
        limits: Sequence[int],
    ) -> list[Draft | None]:
        """For each request the drafts of all drafters that were worth asking, as one tree. `guards`: those that know
        what must come, then the cheapest first."""
        found: list[list[Proposal]] = [[] for _ in limits]
        certain: list[tuple[int, ...]] = [()] * len(limits)
        cheapest = next((guard for guard in guards if not guard.is_certain), None)
        for guard in guards:
            ahead = certain if guard.continues and any(certain) else ()
            asked = [*limits]
            if ahead:
                asked = [max(0, limit - len(tokens)) for limit, tokens in zip(limits, ahead, strict=True)]
            is_free = guard is cheapest or guard.is_certain
            if not is_free and not guard.is_due(len(limits), self.step_seconds):
                asked = self.worth_asking(guard, batch, asked, found, ahead)
            for i, draft in enumerate(guard.propose(batch, output, verdict, asked, ahead)):
                if draft is not None:
                    found[i].append(Proposal(guard, draft, len(ahead[i]) if ahead else 0))
                    if guard.is_certain:
                        certain[i] = certain_tokens(draft)
        for span, each in zip(batch.spans, found, strict=True):
            if each and (self.scores_all or each[-1].guard is not guards[0]):
                self.proposals[span.request.id] = each
        requests = (span.request for span in batch.spans)
        return [self.merged(*each) for each in zip(requests, found, limits, strict=True)]

    def worth_asking(
        self,
        guard: GuardedDrafter,
        batch: Batch,
        limits: Sequence[int],
        found: Sequence[Sequence[Proposal]],
        ahead: Sequence[Sequence[int]],
    ) -> list[int]:
        """The limits of those requests for which the drafter may add more than it costs; 0 of the others."""
        cost = self.cost(guard, len(limits))
        asked = []
        for i, (span, limit, proposals) in enumerate(zip(batch.spans, limits, found, strict=True)):
            own = guard.hits.expected(span.request.id)
            least = cost * self.pace_without(own, span.request.id)
            rivals = () if ahead and ahead[i] else proposals  # nobody else drafts from there
            is_worth = limit > 0 and own > least and self.expected_gain(span.request, own, rivals) > least
            asked.append(limit if is_worth else 0)
        return asked

    def cost(self, guard: GuardedDrafter, num_requests: int) -> float:
        """What a draft of this drafter for each request takes, with its verification, in steps."""
        if not self.step_seconds:
            return 0.0
        verified = guard.hits.mean_verified
        verifying = verified * self.seconds_per_draft_token(num_requests, verified)
        return (guard.seconds_per_draft + verifying) * num_requests / self.step_seconds

    def seconds_per_draft_token(self, num_requests: int, verified: float) -> float:
        """Of so many draft tokens for each request, where each has one of another drafter already."""
        if self.costs is None:
            return 0.0
        before, more = num_requests, max(1, round(verified * num_requests))
        with_more = self.costs.seconds(num_requests + before + more, num_requests, before + more)
        return (with_more - self.costs.seconds(num_requests + before, num_requests, before)) / more

    def merged(self, request: Request, proposals: Sequence[Proposal], limit: int) -> Draft | None:
        if len(proposals) < 2:
            return proposals[0].draft if proposals else None
        return merge([Estimated(each.draft, each.survival(self.calibration, request)) for each in proposals], limit)

    def pace_without(self, own: float, request_id: str) -> float:
        """Tokens that a step would give this request, about, without a drafter that adds `own` of them."""
        return 1.0 if own == inf else max(1.0, self.pace.get(request_id, self.mean_pace) - own)

    def expected_gain(self, request: Request, own: float, proposals: Sequence[Proposal]) -> float:
        """Accepted tokens that a draft with `own` right ones may add to the proposals. Where their first token is wrong
        it counts in full, elsewhere as far as it goes beyond them."""
        if own == inf:
            return inf
        first_is_right = expected = 0.0
        for proposal in proposals:
            survival = proposal.survival(self.calibration, request)
            roots = sum(s for s, parent in zip(survival, parents_of(proposal.draft), strict=True) if parent == ROOT)
            first_is_right = max(first_is_right, min(roots, 1.0))
            expected = max(expected, sum(survival))
        return own * (1 - first_is_right) + max(0.0, own - expected) * first_is_right
