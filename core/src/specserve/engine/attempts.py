"""Computes a step's spans, and where that raises finds the request that makes it raise.

The spans of a step do not depend on each other, so any of them may be computed without the rest, to the same bits.
A step that raises is tried again in halves until the requests that raise alone are found; a request that raises with
its guesses is tried without. All others go on with the tokens that they would have had. Owns no request.
"""

from __future__ import annotations

import time
from traceback import clear_frames
from typing import TYPE_CHECKING, NamedTuple

from specserve.faults import FAULTS, BadAnswerError, RequestFault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from specserve.batch.batch import Batch, BatchBuilder
    from specserve.batch.span import Span
    from specserve.engine.runner import Runner
    from specserve.metrics import EngineMetrics
    from specserve.plugins.blame import Blame
    from specserve.protocols import Verifier
    from specserve.types import ForwardOutput, Verdict


class Computed(NamedTuple):
    """Spans that went through the model and were decided."""

    batch: Batch
    output: ForwardOutput
    verdict: Verdict
    seconds: float
    """What the attempt took."""


class Attempts:
    """`check_device` raises when the device itself is lost: then no request is to blame, and the error passes."""

    def __init__(
        self,
        builder: BatchBuilder,
        runner: Runner,
        verifier: Verifier,
        metrics: EngineMetrics,
        blame: Blame,
        check_device: Callable[[], object],
    ) -> None:
        self.builder, self.runner, self.verifier = builder, runner, verifier
        self.metrics, self.blame, self.check_device = metrics, blame, check_device

    def compute(self, spans: Sequence[Span]) -> tuple[Batch, ForwardOutput, Verdict]:
        """Changes nothing that lasts but what the verdict says of stop strings."""
        batch = self.builder.build(spans)
        output = self.runner.forward(batch)
        if len(output.logits) != batch.num_scored:
            raise BadAnswerError("gave another number of logits than of scored rows")
        return batch, output, self.verifier.verify(batch, output)

    def isolated(self, spans: Sequence[Span], error: BaseException) -> Iterator[Computed | RequestFault]:
        """What the spans give after computing all of them has raised. Use each result before the next is asked for."""
        others = [span for span in spans if span.request.id != getattr(error, "request_id", None)]
        if isinstance(error, RequestFault) and len(others) < len(spans):
            yield error
            if others:
                yield from self.results(others)
        elif len(spans) > 1:
            yield from self.halved(spans, error)
        elif spans[0].drafted:
            self.metrics.drafter_faults[drafter_of(spans[0]), "the step that verified its guesses raised"] += 1
            yield from self.results([spans[0].without_guesses()])
        else:
            self.check_device()
            yield RequestFault(spans[0].request.id, "the step that computes it", error)

    def results(self, spans: Sequence[Span]) -> Iterator[Computed | RequestFault]:
        """One more attempt with fewer spans."""
        began = time.perf_counter()
        try:
            computed = self.compute(spans)
        except FAULTS as error:
            raised = error
        else:
            yield Computed(*computed, time.perf_counter() - began)
            return
        yield from self.isolated(spans, raised)

    def halved(self, spans: Sequence[Span], error: BaseException) -> Iterator[Computed | RequestFault]:
        culprit = self.blame.find(error, "step")
        clear_frames(error.__traceback__)  # the tensors of the attempt are let go before the next needs their memory
        middle, num_faults = len(spans) // 2, 0
        for half in (spans[:middle], spans[middle:]):
            for result in self.results(half):
                num_faults += isinstance(result, RequestFault)
                yield result
        if not num_faults:  # nobody raises alone: out of memory for all of them, or a fault that passed
            self.metrics.faults.count(*culprit, error, "; the step was computed in parts")


def drafter_of(span: Span) -> str:
    return span.draft.source if span.draft is not None else ""
