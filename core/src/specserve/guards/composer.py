"""A plugin's choice among several drafters, made safe to call: where it raises or gives an invalid answer, the first
draft of each request is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.batch.drafts import shallow, sources_of
from specserve.faults import BadAnswerError
from specserve.guards.draft_checks import check_draft
from specserve.protocols import DraftComposer
from specserve.speculation.first_draft import FirstDraft
from specserve.types import Draft

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from specserve.batch.batch import ScheduledBatch
    from specserve.batch.proposals import OpenDraft, Proposal
    from specserve.batch.request import Request
    from specserve.faults import FaultLog
    from specserve.types import Verdict


class GuardedComposer(DraftComposer):
    """`cut` reduces a valid draft to what this engine can verify."""

    def __init__(
        self,
        plugin: str,
        composer: DraftComposer,
        log: FaultLog,
        *,
        vocab_size: int,
        cut: Callable[[Draft], Draft | None],
    ) -> None:
        self.composer, self.vocab_size, self.cut = composer, vocab_size, cut
        self.fallback = FirstDraft()
        self.part = log.part(plugin, "choice among drafters", code=type(composer))

    def draft_order(self, drafters: Sequence[str]) -> Sequence[str]:
        return self.part.call(drafters, self.checked_order, drafters)

    def checked_order(self, drafters: Sequence[str]) -> Sequence[str]:
        order = list(self.composer.draft_order(list(drafters)))
        if sorted(order) != sorted(drafters):
            raise BadAnswerError("ordered other drafters than it was given", f"{order} for {list(drafters)}")
        return order

    def limits(self, drafter: str, drafts: Sequence[OpenDraft]) -> Sequence[int]:
        answer: Sequence[int] | None = self.part.call(None, self.checked_limits, drafter, drafts)
        return self.fallback.limits(drafter, drafts) if answer is None else answer

    def checked_limits(self, drafter: str, drafts: Sequence[OpenDraft]) -> Sequence[int]:
        answer = list(self.composer.limits(drafter, list(drafts)))
        if len(answer) != len(drafts):
            raise BadAnswerError("gave another number of limits than of requests", f"{len(answer)} for {len(drafts)}")
        if not all(type(own) is int and 0 <= own <= each.limit for own, each in zip(answer, drafts, strict=True)):
            raise BadAnswerError("gave a limit that is no number from 0 to the one that it was given")
        return answer

    def observe_cost(self, drafter: str, seconds: float, num_requests: int) -> None:
        self.part.call(None, self.composer.observe_cost, drafter, seconds, num_requests)

    def combine(self, request: Request, proposals: Sequence[Proposal], limit: int) -> Draft | None:
        answer: tuple[Draft | None] | None = self.part.call(None, self.checked_draft, request, proposals, limit)
        return self.fallback.combine(request, proposals, limit) if answer is None else answer[0]

    def checked_draft(self, request: Request, proposals: Sequence[Proposal], limit: int) -> tuple[Draft | None]:
        draft = self.composer.combine(request, proposals, limit)
        if draft is None or any(draft is proposal.draft for proposal in proposals):
            return (draft,)  # what was proposed was checked before
        if not isinstance(draft, Draft):
            raise BadAnswerError("combined drafts into something that is no Draft", type(draft).__name__)
        valid = check_draft(msgspec.structs.replace(draft, sources=None), limit, self.vocab_size)
        valid = valid and shallow(valid, request.max_depth)
        if valid is None or len(valid.tokens) != len(draft.tokens):
            raise BadAnswerError("combined drafts into one that is not in normal form")
        sources = sources_of(draft)
        if len(sources) != len(draft.tokens) or not {*sources} <= {proposal.drafter for proposal in proposals}:
            raise BadAnswerError("combined drafts into one whose sources are not the drafters of its nodes")
        return (self.cut(msgspec.structs.replace(valid, source=draft.source, sources=draft.sources)),)

    def observe(self, batch: ScheduledBatch, verdict: Verdict, seconds: float) -> None:
        self.part.call(None, self.composer.observe, batch, verdict, seconds)

    def stop(self, request: Request) -> None:
        self.part.call(None, self.composer.stop, request)
