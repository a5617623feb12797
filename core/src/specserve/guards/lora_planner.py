"""Asks the plugin that plans adapters for every batch, and keeps its faults with the requests under an adapter.

A request under an adapter must never be served by the base model: where the plan fails, the request ends. Batches
without adapters need no plan. Knows nothing about what a plan holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specserve.faults import FAULTS, BadAnswerError, RequestFault
from specserve.namespaces import strip_salt

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.batch.batch import Batch
    from specserve.faults import PluginPart


class GuardedLoraPlanner:
    """Call it with a batch; the answer is `Batch.lora`."""

    def __init__(self, plan: Callable[[Batch], Any], part: PluginPart) -> None:
        self.plan, self.part = plan, part

    def __call__(self, batch: Batch) -> Any:
        if not self.part.enabled:
            return self.failed(batch, BadAnswerError("is switched off after too many faults"))
        try:
            answer = self.plan(batch)
        except FAULTS as error:
            return self.failed(batch, error)
        self.part.passed()
        return answer

    def failed(self, batch: Batch, error: BaseException) -> None:
        """Nothing where no adapter is concerned. Otherwise raises: for one request as its fault, for several so that
        the step is tried again with fewer of them."""
        if not any(strip_salt(span.request.namespace) for span in batch.spans):
            if self.part.enabled:
                self.part.failed(error, "; no request of this batch is under an adapter")
            return
        if len(batch.spans) == 1:
            what = f"the planner of adapters of {self.part.plugin}"
            raise RequestFault(batch.spans[0].request.id, what, error, self.part) from error
        raise error
