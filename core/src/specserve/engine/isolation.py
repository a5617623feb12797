"""Computes a step's spans, and when that raises finds the request that caused it.

The spans of a step do not depend on each other, so any subset of them may be computed alone, to the same bits.
A step that raises is bisected until the requests are found that raise alone; a request that raises with its draft
tokens is tried without them. All others go on with the tokens that they would have had. Owns no request.
"""

from __future__ import annotations

from traceback import clear_frames
from typing import TYPE_CHECKING, NamedTuple

from specserve.batch.drafts import sources_of
from specserve.faults import FAULTS, RequestFault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from specserve.batch.batch import ScheduledBatch
    from specserve.batch.span import ScheduledSpan
    from specserve.metrics import EngineMetrics
    from specserve.plugins.blame import Blame
    from specserve.types import ForwardOutput, Verdict


class Computed(NamedTuple):
    """Spans that went through the model and were verified."""

    batch: ScheduledBatch
    output: ForwardOutput
    verdict: Verdict
    seconds: float
    """Wall time of building, forward pass and verification, without recording graphs."""


class StepIsolation:
    """`compute`: of spans; it changes nothing that lasts, except that stop strings read the verdict's tokens.
    `check_device` raises when the device itself is lost: then no request is the cause, and the error propagates."""

    def __init__(
        self,
        compute: Callable[[Sequence[ScheduledSpan]], Computed],
        metrics: EngineMetrics,
        blame: Blame,
        check_device: Callable[[], object],
    ) -> None:
        self.compute, self.metrics, self.blame, self.check_device = compute, metrics, blame, check_device

    def results(self, spans: Sequence[ScheduledSpan]) -> Iterator[Computed | RequestFault]:
        """All spans as one result; where computing them raises, in parts, with the requests that raise alone. Commit
        each result before taking the next."""
        try:
            computed = self.compute(spans)
        except FAULTS as error:
            raised = error
        else:
            yield computed
            return
        yield from self.isolate(spans, raised)

    def isolate(self, spans: Sequence[ScheduledSpan], error: BaseException) -> Iterator[Computed | RequestFault]:
        """The results of spans whose joint computation raised `error`."""
        others = [span for span in spans if span.request.id != getattr(error, "request_id", None)]
        if isinstance(error, RequestFault) and len(others) < len(spans):
            (culprit,) = (span for span in spans if span.request.id == error.request_id)
            if culprit.drafted:  # its tokens before the one that raises are as good as without drafts
                yield from self.results([*others, culprit.without_draft()])
                return
            yield error
            if others:
                yield from self.results(others)
        elif len(spans) > 1:
            yield from self.bisect(spans, error)
        elif spans[0].drafted:
            for drafter in drafters_of(spans[0]):
                self.metrics.drafter_faults[drafter, "the step that verified its draft tokens raised"] += 1
            yield from self.results([spans[0].without_draft()])
        else:
            self.check_device()
            yield RequestFault(spans[0].request.id, "the step that computes it", error)

    def bisect(self, spans: Sequence[ScheduledSpan], error: BaseException) -> Iterator[Computed | RequestFault]:
        culprit = self.blame.find(error, "step")
        clear_frames(error.__traceback__)  # frees the tensors of this attempt before the next allocates its own
        middle, num_faults = len(spans) // 2, 0
        for half in (spans[:middle], spans[middle:]):
            for result in self.results(half):
                num_faults += isinstance(result, RequestFault)
                yield result
        if not num_faults:  # no request raises alone: too little memory for all of them, or a transient fault
            self.metrics.faults.count(*culprit, error, "; the step was computed in parts")


def drafters_of(span: ScheduledSpan) -> Iterable[str]:
    return () if span.draft is None else dict.fromkeys(sources_of(span.draft))
