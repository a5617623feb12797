"""Several drafters at once: which of them propose for which requests, and what becomes of their drafts.

The cheapest, as measured, proposes first; a costlier one only for requests where the draft tokens that it may add save
more time than drafting and verifying them takes: the more tokens a step gives without it, the less one saves. Their
drafts are merged into one tree. All proposals are scored against the tokens that the target then gave, verified or not.
A drafter that did not propose for many steps does so once anyway, so that its first misses do not exclude it for good.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from specserve.api import DraftComposer
from specserve.api.drafts import ROOT, Estimated, merge, parents_of, sources_of
from specserve_adaptive.drafter_record import DrafterRecord, right_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.api import Draft, TargetCosts, Verdict
    from specserve.api.batch import Request, ScheduledBatch, ScheduledSpan
    from specserve.api.drafts import OpenDraft, Proposal
    from specserve_adaptive._native import Planner

STEP_RATE, TOKENS_RATE = 0.05, 0.2
"""Of the moving averages of step times and of tokens per step."""


class Competition(DraftComposer):
    """`estimates`: of what survives verification. `scores_all`: whether the only draft of a request is scored here,
    too; else the planner does that. `costs`: None where draft tokens count as free."""

    def __init__(self, estimates: Planner, costs: TargetCosts | None, *, scores_all: bool) -> None:
        self.estimates, self.costs, self.scores_all = estimates, costs, scores_all
        self.records: dict[str, DrafterRecord] = {}
        """By drafter."""
        self.first = ""
        """The first drafter of this step, which proposes for all requests."""
        self.num_steps = 0
        self.proposals: dict[str, Sequence[Proposal]] = {}
        """What is to be scored after the next step, by request id."""
        self.tokens_per_step: dict[str, float] = {}
        """Of each request, moving averages."""
        self.mean_tokens_per_step = 1.0
        """Over the last requests that ended."""
        self.step_seconds = 0.0
        """What a step without prompts takes before it is drafted for, a moving average."""

    def draft_order(self, drafters: Sequence[str]) -> Sequence[str]:
        """The cheapest first."""
        self.first = ""
        for drafter in drafters:
            if drafter not in self.records:
                self.records[drafter] = DrafterRecord(self.num_steps)
        return sorted(drafters, key=lambda drafter: self.records[drafter].seconds_per_draft)

    def limits(self, drafter: str, drafts: Sequence[OpenDraft]) -> Sequence[int]:
        """Those of requests for which the drafter may add more than it costs; 0 for the others."""
        record = self.records[drafter]
        self.first = self.first or drafter
        if drafter != self.first and not record.is_due(self.num_steps, len(drafts), self.step_seconds):
            limits = self.worthwhile(record, drafts)
        else:
            limits = [each.limit for each in drafts]
        if any(limits):
            record.called_at = self.num_steps
        return limits

    def observe_cost(self, drafter: str, seconds: float, num_requests: int) -> None:
        self.records[drafter].observe_cost(seconds / num_requests)

    def combine(self, request: Request, proposals: Sequence[Proposal], limit: int) -> Draft | None:
        if self.scores_all or len(proposals) > 1 or proposals[0].drafter != self.first:
            self.proposals[request.id] = proposals
        if len(proposals) == 1:
            return proposals[0].draft
        return merge([Estimated(each.draft, self.survival(each, request)) for each in proposals], limit)

    def observe(self, batch: ScheduledBatch, verdict: Verdict, seconds: float) -> None:
        self.num_steps += 1
        for span, decided in zip(batch.spans, verdict.spans, strict=True):
            if decided.tokens and span.request.finish_reason is None:
                self.score(span, decided.tokens)
        if batch.only_decodes:
            self.measure_step(seconds)

    def stop(self, request: Request) -> None:
        self.proposals.pop(request.id, None)
        own = self.tokens_per_step.pop(request.id, self.mean_tokens_per_step)
        self.mean_tokens_per_step += TOKENS_RATE * (own - self.mean_tokens_per_step)
        for record in self.records.values():
            record.hits.forget(request.id)
        if self.scores_all:
            self.estimates.forget(request.id)

    # --- what is learned ----------------------------------------------------------------------------

    def score(self, span: ScheduledSpan, tokens: Sequence[int]) -> None:
        """Score the last proposals against the tokens that the target gave."""
        request = span.request
        usual = self.tokens_per_step.get(request.id, self.mean_tokens_per_step)
        self.tokens_per_step[request.id] = usual + TOKENS_RATE * (len(tokens) - usual)
        proposals = self.proposals.pop(request.id, ())
        sources = sources_of(span.draft) if proposals and span.draft is not None else ()
        for proposal in proposals:
            own, followers = proposal.own, proposal.followers(tokens)
            if followers is None:
                continue
            if len(proposals) > 1 or self.scores_all:
                self.estimates.observe(own, request, followers)
            num_right = right_tokens(own, self.estimates.survival(own, request), followers)
            hits = self.records[proposal.drafter].hits
            hits.add(request.id, num_right, sources.count(proposal.drafter))

    def measure_step(self, seconds: float) -> None:
        """An outlier counts as twice the average."""
        if self.step_seconds:
            seconds = min(seconds, 2 * self.step_seconds)
            self.step_seconds += STEP_RATE * (seconds - self.step_seconds)
        else:
            self.step_seconds = seconds

    # --- what is decided ----------------------------------------------------------------------------

    def worthwhile(self, record: DrafterRecord, drafts: Sequence[OpenDraft]) -> list[int]:
        cost = self.cost(record, len(drafts))
        chosen = []
        for request, limit, others, after in drafts:
            own = record.expected(request.id)
            needed = cost * self.tokens_without(own, request.id)
            rivals = () if after else others  # nobody else drafts from there
            is_worth = limit > 0 and own > needed and self.expected_gain(request, own, rivals) > needed
            chosen.append(limit if is_worth else 0)
        return chosen

    def cost(self, record: DrafterRecord, num_requests: int) -> float:
        """What a draft of this drafter for each request takes, with its verification, in steps."""
        if not self.step_seconds:
            return 0.0
        verified = record.hits.mean_verified
        verifying = verified * self.seconds_per_draft_token(num_requests, verified)
        return (record.seconds_per_draft + verifying) * num_requests / self.step_seconds

    def seconds_per_draft_token(self, num_requests: int, verified: float) -> float:
        """Of `verified` for each request, where each has one of another drafter already."""
        if self.costs is None:
            return 0.0
        before, more = num_requests, max(1, round(verified * num_requests))
        with_more = self.costs.seconds(num_requests + before + more, num_requests, before + more)
        return (with_more - self.costs.seconds(num_requests + before, num_requests, before)) / more

    def tokens_without(self, own: float, request_id: str) -> float:
        """Tokens that a step would give this request, about, without a drafter that adds `own` of them."""
        usual = self.tokens_per_step.get(request_id, self.mean_tokens_per_step)
        return 1.0 if own == inf else max(1.0, usual - own)

    def expected_gain(self, request: Request, own: float, proposals: Sequence[Proposal]) -> float:
        """Accepted tokens that a draft with `own` right ones may add to the proposals. Where their first token is wrong
        it counts in full, elsewhere as far as it goes beyond them."""
        if own == inf:
            return inf
        first_is_right = expected = 0.0
        for proposal in proposals:
            survival = self.survival(proposal, request)
            roots = sum(s for s, parent in zip(survival, parents_of(proposal.draft), strict=True) if parent == ROOT)
            first_is_right = max(first_is_right, min(roots, 1.0))
            expected = max(expected, sum(survival))
        return own * (1 - first_is_right) + max(0.0, own - expected) * first_is_right

    def survival(self, proposal: Proposal, request: Request) -> list[float]:
        """P(node and its ancestors are accepted), for every node of the draft."""
        return [*(1.0,) * proposal.num_forced, *self.estimates.survival(proposal.own, request)]
