"""A plugin's LoRA planner, whose faults affect only requests with an adapter.

A request with an adapter must never be served by the base model: where the plan fails, the request ends. Batches
without adapters need no plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.batch.lora_plan import LoraPlan
from specserve.faults import FAULTS, BadAnswerError, RequestFault

if TYPE_CHECKING:
    from specserve.batch.batch import Batch
    from specserve.faults import PluginPart
    from specserve.protocols import LoraPlanner


class GuardedLoraPlanner:
    def __init__(self, planner: LoraPlanner, part: PluginPart) -> None:
        self.planner, self.part = planner, part

    def plan(self, batch: Batch) -> LoraPlan | None:
        if not self.part.enabled:
            self.failed(batch, BadAnswerError("is switched off after too many faults"))
            return None
        try:
            answer = self.planner.plan(batch)
            if not isinstance(answer, LoraPlan | None):
                raise BadAnswerError("gave something else than a LoraPlan")
        except FAULTS as error:
            self.failed(batch, error)
            return None
        self.part.succeeded()
        return answer

    def failed(self, batch: Batch, error: BaseException) -> None:
        """Nothing where no request has an adapter. Otherwise raises: for one request a RequestFault, for several an
        error after which the step is tried again with fewer of them."""
        if not any(span.adapter for span in batch.spans):
            if self.part.enabled:
                self.part.failed(error, "; no request of this batch is under an adapter")
            return
        if len(batch.spans) == 1:
            what = f"the LoRA planner of {self.part.plugin}"
            raise RequestFault(batch.spans[0].request_id, what, error, self.part) from error
        raise error
