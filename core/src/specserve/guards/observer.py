"""A plugin's observer, made safe to call: a step that it fails to observe is left out, and so are invalid samples."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from specserve.guards.metric_checks import check_metric

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.batch.batch import ScheduledBatch
    from specserve.faults import FaultLog
    from specserve.protocols import Metric, MetricsSource, Observer, OutputObserver
    from specserve.types import ForwardOutput, Verdict


class GuardedObserver:
    """`observer` is the plugin's own object."""

    def __init__(self, plugin: str, observer: Observer | OutputObserver | MetricsSource, log: FaultLog) -> None:
        self.observer = observer
        self.reads_output = observer.observe is not None and takes(observer.observe, 3)
        self.observe_part = log.part(plugin, "observer", code=observer.observe)
        self.metrics_part = log.part(plugin, "observer's metrics", needed=True, code=observer.metrics)

    def observe(self, batch: ScheduledBatch, verdict: Verdict, output: ForwardOutput) -> None:
        observe = self.observer.observe
        if observe is not None:
            given = (batch, verdict, output) if self.reads_output else (batch, verdict)
            self.observe_part.call(None, observe, *given)

    def metrics(self) -> list[Metric]:
        """The observer's samples without those that cannot be exposed."""
        samples: list[Metric] = self.metrics_part.call([], lambda: list(self.observer.metrics()))
        return [sample for sample in samples if self.metrics_part.call(False, check_metric, sample)]


def takes(method: Callable[..., object], count: int) -> bool:
    """Whether it can be called with this many arguments."""
    try:
        inspect.signature(method).bind(*range(count))
    except (TypeError, ValueError):  # it cannot, or it is native code that does not say
        return False
    return True
