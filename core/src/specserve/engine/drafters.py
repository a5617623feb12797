"""Calls the enabled drafters after a step: one, or several whose drafts a composer chooses among.

Drafters that know what must come propose first, and those that can go on from the end of such forced tokens do so. Then
follow drafters that read the logits, which the passes of another may overwrite, then the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from specserve.batch.proposals import OpenDraft, Proposal, forced_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.batch.batch import ScheduledBatch
    from specserve.batch.request import Request
    from specserve.guards.drafter import GuardedDrafter
    from specserve.protocols import DraftComposer
    from specserve.types import Draft, ForwardOutput, Verdict


class Drafters(Protocol):
    """One or several."""

    @property
    def guards(self) -> Sequence[GuardedDrafter]: ...

    def propose(
        self, batch: ScheduledBatch, output: ForwardOutput, verdict: Verdict, limits: Sequence[int]
    ) -> Sequence[Draft | None]:
        """A draft or None per span."""
        ...

    def observe(self, batch: ScheduledBatch, verdict: Verdict, seconds: float) -> None:
        """A step ended, for which the last drafts were made. Called before the next `propose`."""
        ...

    def stop(self, request: Request) -> None:
        """The request ended."""
        ...

    @property
    def seconds_of_others(self) -> float:
        """What all drafters but the first took in the latest `propose`."""
        ...

    @property
    def pass_seconds(self) -> float:
        """See `Drafter.pass_seconds`; 0 for several drafters."""
        ...


class OneDrafter:
    """Nothing is to be chosen."""

    seconds_of_others = 0.0

    def __init__(self, guard: GuardedDrafter) -> None:
        self.guard, self.guards = guard, (guard,)

    def propose(
        self, batch: ScheduledBatch, output: ForwardOutput, verdict: Verdict, limits: Sequence[int]
    ) -> Sequence[Draft | None]:
        return self.guard.propose(batch, output, verdict, limits)

    def observe(self, batch: ScheduledBatch, verdict: Verdict, seconds: float) -> None:
        pass

    def stop(self, request: Request) -> None:
        self.guard.stop(request)

    @property
    def pass_seconds(self) -> float:
        return self.guard.pass_seconds


class SeveralDrafters:
    """The composer decides which of them propose for which requests, and what becomes of the drafts."""

    pass_seconds = 0.0

    def __init__(self, guards: Sequence[GuardedDrafter], composer: DraftComposer) -> None:
        self.guards = sorted(guards, key=place_by_logits)
        self.composer = composer
        self.seconds_of_others = 0.0

    def propose(
        self, batch: ScheduledBatch, output: ForwardOutput, verdict: Verdict, limits: Sequence[int]
    ) -> Sequence[Draft | None]:
        requests = [span.request for span in batch.spans]
        proposals: list[list[Proposal]] = [[] for _ in requests]
        forced: list[tuple[int, ...]] = [()] * len(requests)
        order = self.in_order()
        for guard in order:
            before = forced if guard.continues_forced and any(forced) else [()] * len(requests)
            open_drafts = [
                OpenDraft(request, limit_for(guard, request, limit - len(tokens)), others, len(tokens))
                for request, limit, others, tokens in zip(requests, limits, proposals, before, strict=True)
            ]
            if guard.proposes_forced:
                wanted: Sequence[int] = [each.limit for each in open_drafts]
            else:
                wanted = self.composer.limits(guard.name, open_drafts)
            drafts = guard.propose(batch, output, verdict, wanted, before if any(before) else ())
            for i, draft in enumerate(drafts):
                if draft is not None:
                    proposals[i].append(Proposal(guard.name, draft, len(before[i])))
                    if guard.proposes_forced:
                        forced[i] = forced_tokens(draft)
            if batch.only_decodes and (num_wanted := len(wanted) - list(wanted).count(0)):
                self.composer.observe_cost(guard.name, guard.seconds, num_wanted)
        self.seconds_of_others = sum(guard.seconds for guard in order[1:])
        return [
            self.composer.combine(request, each, limit) if each else None
            for request, each, limit in zip(requests, proposals, limits, strict=True)
        ]

    def in_order(self) -> list[GuardedDrafter]:
        """Those that are not switched off."""
        by_name = {guard.name: guard for guard in self.guards if guard.enabled}
        order = [by_name[name] for name in self.composer.draft_order(list(by_name))]
        return sorted(order, key=lambda guard: (not guard.proposes_forced, place_by_logits(guard)))

    def observe(self, batch: ScheduledBatch, verdict: Verdict, seconds: float) -> None:
        self.composer.observe(batch, verdict, seconds)

    def stop(self, request: Request) -> None:
        self.composer.stop(request)
        for guard in self.guards:
            guard.stop(request)


def place_by_logits(guard: GuardedDrafter) -> int:
    """0 of those that read the step's logits, 1 of those that read and then may overwrite them, 2 of those that may
    overwrite them."""
    return (1 if guard.computes_with_target else 0) if guard.reads_logits else 2


def limit_for(guard: GuardedDrafter, request: Request, limit: int) -> int:
    """0 where the request has other drafters."""
    return limit if limit > 0 and request.speculation.allows(guard.name) else 0
