"""What tests do with the drafts of several drafters: all of them are verified, as one tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.batch.drafts import ROOT, parents_of
from specserve.speculation.first_draft import FirstDraft
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve.types import Draft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.batch.proposals import Proposal
    from specserve.batch.request import Request


class UnionOfDrafts(FirstDraft):
    """All drafters propose for all requests. A path that two drafts have in common is there once, and is the first
    drafter's."""

    def limits(
        self,
        drafter: str,
        requests: Sequence[Request],
        limits: Sequence[int],
        proposals: Sequence[Sequence[Proposal]],
        num_forced: Sequence[int],
    ) -> list[int]:
        return list(limits)

    def combine(self, request: Request, proposals: Sequence[Proposal], limit: int) -> Draft | None:
        if len(proposals) == 1:
            return proposals[0].draft
        places: dict[tuple[int, int], int] = {}
        sources: list[str] = []
        for proposal in proposals:
            into = {ROOT: ROOT}
            for node, (parent, token) in enumerate(zip(parents_of(proposal.draft), proposal.draft.tokens, strict=True)):
                if parent not in into:
                    continue
                key = into[parent], token
                if key not in places:
                    if len(places) == limit:
                        continue
                    places[key] = len(places)
                    sources.append(proposal.drafter)
                into[node] = places[key]
        return Draft(
            tokens=tuple(token for _, token in places),
            parents=tuple(parent for parent, _ in places),
            source="+".join(dict.fromkeys(sources)),
            sources=tuple(sources),
        )


def everything(max_draft_tokens: int = 32) -> FixedWidthPlanner:
    """A planner that verifies all drafts of all drafters, so that counts do not depend on the machine's speed."""
    planner = FixedWidthPlanner(max_draft_tokens)
    planner.composer = UnionOfDrafts()
    return planner
