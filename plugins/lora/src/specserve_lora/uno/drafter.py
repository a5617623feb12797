"""Drafts with the target and the draft adapter: one pass for all requests of a step. It keeps nothing of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import Drafter, DrafterNeeds, GuessedRows
from specserve.api.models import inference
from specserve.api.sampling import chain_of
from specserve_lora.uno.chains import draft_chains
from specserve_lora.uno.noise import noise_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.api import Draft, DraftAdapter, DraftToken, ForwardOutput, TargetPass, Verdict
    from specserve.api.batch import Request, ScheduledBatch
    from specserve_lora.uno.config import UnoConfig


class UnoDrafter(Drafter):
    name = "uno"

    def __init__(self, adapter: DraftAdapter, config: UnoConfig) -> None:
        self.adapter, self.config = adapter, config
        self.needs = DrafterNeeds(target_rows=config.draft_tokens)
        self.target: TargetPass | None = None
        """Set by `connect_target`."""

    def connect_target(self, target: TargetPass) -> None:
        self.target = target

    def propose(
        self, batch: ScheduledBatch, output: ForwardOutput, verdict: Verdict, limits: Sequence[int]
    ) -> list[Draft | None]:
        drafts: list[Draft | None] = [None] * len(limits)
        requests = [span.request for span in batch.spans]
        counts = [self.num_wanted(request, limit) for request, limit in zip(requests, limits, strict=True)]
        drafting = [i for i, count in enumerate(counts) if count > 0]
        if not drafting:
            return drafts
        assert self.target is not None, "drafts are wanted of a drafter that is connected"
        most = self.target.max_requests
        for part in (drafting[begin : begin + most] for begin in range(0, len(drafting), most)):
            chains = self.chains([requests[i] for i in part], [counts[i] for i in part])
            for i, chain in zip(part, chains, strict=True):
                drafts[i] = chain_of(chain, self.name)
        return drafts

    def num_wanted(self, request: Request, limit: int) -> int:
        """0 where more than the last token is not computed."""
        if limit <= 0 or request.computed != len(request.tokens) - 1:
            return 0
        return min(limit, self.config.draft_tokens, request.max_depth)

    @inference
    def chains(self, requests: Sequence[Request], counts: Sequence[int]) -> list[list[DraftToken]]:
        assert self.target is not None
        rows = [
            GuessedRows(request, noise_tokens(len(request.tokens), count - 1, self.config.mask_token_id))
            for request, count in zip(requests, counts, strict=True)
        ]
        logits = self.target.logits(rows, self.adapter)
        return draft_chains(self.target.sampler, logits, requests, counts)
