"""Verifiers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from specserve.batch.batch import ScheduledBatch
    from specserve.types import ForwardOutput, Verdict


class Verifier(Protocol):
    """Decides tokens from logits. The default is drafter-invariant; a lossy one sets `lossless = False`."""

    name: str
    lossless: bool

    def verify(self, batch: ScheduledBatch, output: ForwardOutput) -> Verdict:
        """One SpanVerdict per span, from raw logits. Called again with fewer spans where it raises."""
        ...
