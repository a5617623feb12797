"""Forward passes over batches that were sent and received: what computes them sees data and no live request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.batch.transport import receive, send

if TYPE_CHECKING:
    from specserve.batch.batch import Batch
    from specserve.engine.engine import Engine
    from specserve.types import ForwardOutput


def let_batches_travel(engine: Engine) -> list[Batch]:
    """From now on the engine's passes read decoded bytes; returns the batches as they arrived."""
    forward, builder = engine.runner.forward, engine.parts.builder
    received: list[Batch] = []

    def forward_received(batch: Batch) -> ForwardOutput:
        received.append(receive(send(batch), builder))
        return forward(received[-1])

    engine.runner.forward = forward_received  # type: ignore[method-assign]
    return received
