"""Asks the drafters after each step and gives each request its best draft for the next.

Several drafters compose: the cheapest (as measured) is asked first, and a costlier one only for requests
whose best draft so far has fewer expected accepted tokens than the costlier drafter usually achieves. All proposals are
scored against the tokens that the target then gave, verified or not. A drafter that was not asked for many steps is
asked once anyway, so that its first misses do not exclude it for good. Guards keep faults away from the requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.speculation.calibration import Calibration, hits_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.batch.batch import Batch
    from specserve.batch.request import Request
    from specserve.guards.drafter import GuardedDrafter
    from specserve.protocols import DraftPlanner
    from specserve.types import Draft, ForwardOutput, Verdict


class NoDraft:
    """No drafter is enabled: plain decoding."""

    def start(self, request: Request) -> None:
        pass

    def draft(self, batch: Batch, output: ForwardOutput, verdict: Verdict) -> None:
        pass

    def stop(self, request: Request) -> None:
        pass


class Drafting:
    """One or several guarded drafters."""

    def __init__(self, guards: Sequence[GuardedDrafter], planner: DraftPlanner) -> None:
        self.guards, self.planner = guards, planner
        self.calibration = Calibration()
        self.may_skip = not any(guard.hears_every_step for guard in guards)
        """No drafter reads the rows of steps in which none is asked."""
        self.proposals: dict[str, list[tuple[GuardedDrafter, Draft]]] = {}
        """The drafts proposed after the last step, by request id; kept only when several drafters compete."""

    def start(self, request: Request) -> None:
        for guard in self.guards:
            guard.start(request)

    def stop(self, request: Request) -> None:
        self.proposals.pop(request.id, None)
        for guard in self.guards:
            guard.stop(request)

    def draft(self, batch: Batch, output: ForwardOutput, verdict: Verdict) -> None:
        # not by the verdict alone: committing has ended a request whose processor failed
        requests = [span.request for span in batch.spans]
        live = [i for i, span in enumerate(verdict.spans) if span.tokens and requests[i].finish_reason is None]
        planned = self.planner.limits([requests[i] for i in live])
        if self.may_skip and not self.proposals and not any(planned):
            return  # most steps while every request backs off
        limits = [0] * len(batch.spans)
        for i, limit in zip(live, planned, strict=True):
            limits[i] = limit
        if len(self.guards) == 1:
            best = self.guards[0].propose(batch, output, verdict, limits)
        else:
            self.score(batch, verdict)
            best = self.compete(batch, output, verdict, limits)
        for i in live:
            requests[i].draft = best[i]

    def compete(
        self, batch: Batch, output: ForwardOutput, verdict: Verdict, limits: Sequence[int]
    ) -> list[Draft | None]:
        """For each request the draft with the most expected accepted tokens."""
        best: list[Draft | None] = [None] * len(limits)
        expected = [0.0] * len(limits)
        for guard in sorted(self.guards, key=lambda g: g.seconds_per_draft):
            asked = list(limits)
            if not guard.is_due():
                asked = [limit if p < guard.mean_hits else 0 for limit, p in zip(limits, expected, strict=True)]
            for i, draft in enumerate(guard.propose(batch, output, verdict, asked)):
                if draft is None:
                    continue
                self.proposals.setdefault(batch.spans[i].request.id, []).append((guard, draft))
                promised = sum(self.calibration.survival(draft))
                if promised > expected[i]:
                    best[i], expected[i] = draft, promised
        return best

    def score(self, batch: Batch, verdict: Verdict) -> None:
        """Score the last proposals against the tokens that the target gave."""
        for span, decided in zip(batch.spans, verdict.spans, strict=True):
            if decided.tokens:
                for guard, draft in self.proposals.pop(span.request.id, ()):
                    self.calibration.observe(draft, decided.tokens)
                    guard.score(hits_of(draft, decided.tokens))
