"""A planner that verifies a random part of each draft, whatever it is worth and whatever the clock says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.batch.drafts import keep, parents_of
from specserve.protocols import DraftPlanner
from specserve.speculation.fixed_width import draft_limit
from specserve_workbench.testing.composers import UnionOfDrafts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from specserve.batch.proposals import Proposal
    from specserve.batch.request import Request
    from specserve.types import Draft


class ChaosComposer(UnionOfDrafts):
    """Any drafter proposes for any request, and any proposal is taken, or all of them."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng

    def draft_order(self, drafters: Sequence[str]) -> Sequence[str]:
        return self.rng.sample(list(drafters), len(drafters))

    def limits(self, drafter, drafts):
        return [each.limit if self.rng.random() < 0.8 else each.limit // 2 for each in drafts]

    def combine(self, request: Request, proposals: Sequence[Proposal], limit: int) -> Draft | None:
        if self.rng.random() < 0.5:
            return super().combine(request, proposals, limit)
        return self.rng.choice(proposals).draft


class Chaos(DraftPlanner):
    def __init__(self, max_draft_tokens: int, rng: Random) -> None:
        self.max_draft_tokens, self.rng = max_draft_tokens, rng
        self.composer = ChaosComposer(rng)

    def limits(self, requests: Sequence[Request]) -> list[int]:
        return [draft_limit(r, self.max_draft_tokens) if self.rng.random() < 0.9 else 0 for r in requests]

    def choose(self, requests: Sequence[Request], budget: int, base_rows: int) -> list[Draft | None]:
        chosen: list[Draft | None] = []
        for request in requests:
            draft = request.draft and self.part(request.draft, budget)
            budget -= len(draft.tokens) if draft else 0
            chosen.append(draft)
        return chosen

    def part(self, draft: Draft, budget: int) -> Draft | None:
        """Parents stay with their children."""
        kept: set[int] = set()
        p = self.rng.choice((0.3, 0.8, 1.0, 1.0))
        for node, parent in enumerate(parents_of(draft)):
            if (parent < 0 or parent in kept) and len(kept) < budget and self.rng.random() < p:
                kept.add(node)
        return keep(draft, kept)
