"""What tests do with the drafts of several drafters: all of them are verified, as one tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.batch.merging import Estimated, merge
from specserve.speculation.first_draft import FirstDraft
from specserve.speculation.fixed_width import FixedWidthPlanner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.batch.proposals import OpenDraft, Proposal
    from specserve.batch.request import Request
    from specserve.types import Draft


class UnionOfDrafts(FirstDraft):
    """All drafters propose for all requests. A path that two drafts have in common is there once, and is the first
    drafter's."""

    def limits(self, drafter: str, drafts: Sequence[OpenDraft]) -> list[int]:
        return [each.limit for each in drafts]

    def combine(self, request: Request, proposals: Sequence[Proposal], limit: int) -> Draft | None:
        return merge([Estimated(each.draft, (1.0,) * len(each.draft.tokens)) for each in proposals], limit)


def everything(max_draft_tokens: int = 32) -> FixedWidthPlanner:
    """A planner that verifies all drafts of all drafters, so that counts do not depend on the machine's speed."""
    planner = FixedWidthPlanner(max_draft_tokens)
    planner.composer = UnionOfDrafts()
    return planner
