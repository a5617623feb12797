"""What a plugin's planner knows of step costs, made safe to use: where it fails, draft tokens count as free."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from specserve.faults import BadAnswerError

if TYPE_CHECKING:
    from specserve.faults import FaultLog
    from specserve.protocols import TargetCosts


class GuardedCosts:
    """`specserve.protocols.TargetCosts`."""

    def __init__(self, plugin: str, costs: TargetCosts, log: FaultLog) -> None:
        self.costs = costs
        self.part = log.part(plugin, "planner's step costs", code=costs.seconds)

    def seconds(self, rows: int, requests: int, draft_tokens: int = 0) -> float:
        return self.part.call(0.0, self.checked, rows, requests, draft_tokens)

    def checked(self, rows: int, requests: int, draft_tokens: int) -> float:
        seconds = self.costs.seconds(rows, requests, draft_tokens)
        if not (isinstance(seconds, float | int) and 0.0 <= seconds < inf):
            raise BadAnswerError("gave step costs that are no seconds")
        return float(seconds)
