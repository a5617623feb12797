"""The engine's own planner: the same number of draft tokens for every request, and none in large batches.

It learns nothing. A plugin that provides `planner.adaptive` decides by what draft tokens bring and cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specserve.batch.drafts import first
from specserve.protocols import DraftPlanner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.batch.request import Request
    from specserve.types import Draft

DRAFT_TOKENS, MAX_DRAFT_BATCH = 4, 8
"""What `EngineConfig.draft_tokens` and `max_draft_batch` are where one of them is not set."""


def draft_limit(request: Request, max_draft_tokens: int) -> int:
    """Draft tokens that may help a request: within its own limit, and none in its last step, whose bonus token is
    enough."""
    params = request.speculation
    if not params.enabled or request.max_depth <= 0:
        return 0
    return max_draft_tokens if params.max_draft_tokens is None else min(max_draft_tokens, params.max_draft_tokens)


class FixedWidthPlanner(DraftPlanner):
    """Verifies whatever is proposed within `max_draft_tokens` a request, as far as the token budget goes; nothing while
    more than `max_requests` run (None: however many run)."""

    def __init__(self, max_draft_tokens: int, max_requests: int | None = None) -> None:
        self.max_draft_tokens, self.max_requests = max_draft_tokens, max_requests

    def limits(self, requests: Sequence[Request]) -> list[int]:
        if self.max_requests is not None and len(requests) > self.max_requests:
            return [0] * len(requests)
        return [draft_limit(request, self.max_draft_tokens) for request in requests]

    def choose(self, requests: Sequence[Request], budget: int, base_rows: int) -> list[Draft | int | None]:
        chosen: list[Draft | int | None] = []
        for request in requests:
            draft = request.draft and first(request.draft, budget)
            budget -= len(draft.tokens) if draft else 0
            chosen.append(draft)
        return chosen

    def describe(self) -> dict[str, Any] | None:
        return {"mode": "fixed", "draft_tokens": self.max_draft_tokens, "max_draft_batch": self.max_requests}
