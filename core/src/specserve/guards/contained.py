"""Observers and logits processors of plugins, safe to call: what they raise stays with them, or with one request.

An observer that raises is left out of that step. A logits processor decides tokens, so one that raises ends the
request that it raised for. Knows nothing of batches and steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.faults import FAULTS, BadAnswerError, FaultLog, RequestFault
from specserve.guards.metric_checks import check_metric
from specserve.plugins.answers import lacking

if TYPE_CHECKING:
    from specserve.batch.batch import Batch
    from specserve.batch.request import Request
    from specserve.protocols import LogitsProcessor, Metric, Observer
    from specserve.types import Verdict

STATE_METHODS = ("apply", "commit")


class ContainedObserver:
    def __init__(self, plugin: str, observer: Observer, log: FaultLog) -> None:
        self.observer = observer
        self.observing = log.part(plugin, "observer")
        self.telling = log.part(plugin, "observer's metrics", needed=True)

    def observe(self, batch: Batch, verdict: Verdict) -> None:
        self.observing.call(None, self.observer.observe, batch, verdict)

    def metrics(self) -> list[Metric]:
        """Its samples, less those that cannot be shown."""
        samples: list[Metric] = self.telling.call([], lambda: list(self.observer.metrics()))
        return [sample for sample in samples if self.telling.call(False, check_metric, sample)]


class ContainedProcessor:
    """`essential` processors, see `specserve.protocols.LogitsProcessor`, are never switched off."""

    def __init__(self, plugin: str, processor: LogitsProcessor, log: FaultLog, *, needed: bool = False) -> None:
        self.processor = processor
        needed = needed or bool(getattr(processor, "essential", False))
        self.part = log.part(plugin, "logits processor", needed=needed)

    def start(self, request: Request, vocab_size: int) -> None:
        """Add the processor's state for this request, if it has one. Raises RequestFault."""
        if not self.part.enabled:
            return
        try:
            state = self.processor.start(request, vocab_size)
            if state is None:
                return
            if missing := lacking(state, methods=STATE_METHODS):
                raise BadAnswerError(f"started a state without {', '.join(missing)}")
        except FAULTS as error:
            raise RequestFault(request.id, f"the logits processor of {self.part.plugin}", error, self.part) from error
        request.processors.append(state)
        request.processor_parts.append(self.part)
