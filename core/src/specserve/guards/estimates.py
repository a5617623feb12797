"""A plugin planner's estimates of survival, made safe to use: where they fail, the core's own prior holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.faults import BadAnswerError
from specserve.speculation.calibration import Calibration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.batch.request import Request
    from specserve.faults import FaultLog
    from specserve.protocols import SurvivalEstimates
    from specserve.types import Draft


class GuardedEstimates:
    """`specserve.protocols.SurvivalEstimates`."""

    def __init__(self, plugin: str, estimates: SurvivalEstimates, log: FaultLog) -> None:
        self.estimates, self.prior = estimates, Calibration()
        self.part = log.part(plugin, "planner's estimates")

    def survival(self, draft: Draft, request: Request) -> Sequence[float]:
        own: Sequence[float] | None = self.part.call(None, self.checked, draft, request)
        return self.prior.survival(draft, request) if own is None else own

    def checked(self, draft: Draft, request: Request) -> Sequence[float]:
        survival = self.estimates.survival(draft, request)
        if len(survival) != len(draft.tokens):
            raise BadAnswerError("estimated another number of survivals than of draft tokens")
        if not all(0.0 <= each <= 1.0 for each in survival):
            raise BadAnswerError("estimated a survival outside 0..1")
        return survival

    def observe(self, draft: Draft, request: Request, tokens: Sequence[int]) -> None:
        self.part.call(None, self.estimates.observe, draft, request, tokens)
