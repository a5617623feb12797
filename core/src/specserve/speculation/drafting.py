"""Asks the drafters after each step and puts the best draft of each request on it for the next.

Several drafters compose: the cheapest (as measured) is asked first, and a costlier one only for requests
whose draft so far promises less than the costlier one's drafts usually bring. All are held against the
tokens that the target then gave, verified or not. One that was asked nothing for many steps is asked once
whatever it promises, so that none is locked out by its first misses. Guards keep every fault away from the requests.
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
    """Stands where no drafter is enabled: plain decoding."""

    def start(self, request: Request) -> None:
        pass

    def draft(self, batch: Batch, output: ForwardOutput, verdict: Verdict) -> None:
        pass

    def stop(self, request: Request) -> None:
        pass


class Drafting:
    """One drafter or several, behind their guards."""

    def __init__(self, guards: Sequence[GuardedDrafter], planner: DraftPlanner) -> None:
        self.guards, self.planner = guards, planner
        self.calibration = Calibration()
        self.asked_only = not any(guard.hears_every_step for guard in guards)
        """No drafter has to hear of steps in which nothing is asked."""
        self.proposals: dict[str, list[tuple[GuardedDrafter, Draft]]] = {}
        """What each drafter proposed for each request after the last step; kept only where several compete."""

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
        if self.asked_only and not self.proposals and not any(planned):
            return  # most steps of a server whose text does not repeat
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
        """Of each request's drafts the one that promises most."""
        best: list[Draft | None] = [None] * len(limits)
        promise = [0.0] * len(limits)
        for guard in sorted(self.guards, key=lambda g: g.seconds_per_draft):
            asked = list(limits)
            if not guard.is_due():
                asked = [limit if p < guard.mean_hits else 0 for limit, p in zip(limits, promise, strict=True)]
            for i, draft in enumerate(guard.propose(batch, output, verdict, asked)):
                if draft is None:
                    continue
                self.proposals.setdefault(batch.spans[i].request.id, []).append((guard, draft))
                expected = sum(self.calibration.survival(draft))
                if expected > promise[i]:
                    best[i], promise[i] = draft, expected
        return best

    def score(self, batch: Batch, verdict: Verdict) -> None:
        """Hold the last proposals against the tokens that came."""
        for span, decided in zip(batch.spans, verdict.spans, strict=True):
            if decided.tokens:
                for guard, draft in self.proposals.pop(span.request.id, ()):
                    self.calibration.observe(draft, decided.tokens)
                    guard.score(hits_of(draft, decided.tokens))
