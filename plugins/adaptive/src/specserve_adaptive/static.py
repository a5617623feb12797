"""Always the same number of draft tokens, for benchmarks and for debugging."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specserve.api.drafts import FixedWidthPlanner
from specserve_adaptive._native import Planner
from specserve_adaptive.competition import Competition
from specserve_adaptive.ranked import MIN_GAIN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from specserve.api import Metric


class StaticPlanner(FixedWidthPlanner):
    """Drafts the same number of tokens in every step and verifies them."""

    def __init__(self, max_draft_tokens: int) -> None:
        super().__init__(max_draft_tokens)
        self.composer = Competition(Planner("fair", MIN_GAIN), None, scores_all=True)

    def describe(self) -> dict[str, Any]:
        return {"mode": "static", "tokens": self.max_draft_tokens}

    def metrics(self) -> Iterable[Metric]:
        return ()
