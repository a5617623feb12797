"""The engine's own choice among several drafters: the first one that has a draft for a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.protocols import DraftComposer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.batch.proposals import OpenDraft, Proposal
    from specserve.batch.request import Request
    from specserve.types import Draft


class FirstDraft(DraftComposer):
    """Drafters are called in the order in which they are enabled. A draft that goes on after forced tokens takes the
    place of one that does not. Learns nothing."""

    def limits(self, drafter: str, drafts: Sequence[OpenDraft]) -> list[int]:
        return [
            0 if any(proposal.num_forced >= each.num_forced for proposal in each.proposals) else each.limit
            for each in drafts
        ]

    def combine(self, request: Request, proposals: Sequence[Proposal], limit: int) -> Draft | None:
        chosen = max(proposals, key=lambda proposal: proposal.num_forced)
        if not chosen.num_forced:
            return chosen.draft
        num_own = len(chosen.draft.tokens) - chosen.num_forced
        sources = (proposals[0].drafter,) * chosen.num_forced + (chosen.drafter,) * num_own
        return msgspec.structs.replace(chosen.draft, source="+".join(dict.fromkeys(sources)), sources=sources)
