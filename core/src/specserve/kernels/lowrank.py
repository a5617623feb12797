"""The low-rank additions of adapters to a projection, in plain matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from specserve.batch.lora_plan import Segment


def add_to_all_rows(
    linear: Callable[[Tensor, Tensor, None], Tensor],
    projection: str,
    x: Tensor,
    out: Tensor,
    segments: Sequence[Segment],
) -> None:
    """For kernels whose bits depend on the row count: every adapter is applied to all rows of x, and each segment adds
    the rows of its own adapter. `Segment.adapter` holds the weights by projection name."""
    for adapter in {id(segment.adapter): segment.adapter for segment in segments}.values():
        for part in adapter.get(projection, ()):
            added = linear(linear(x, part.down, None), part.up, None)
            for segment in segments:
                if segment.adapter is adapter:
                    out[segment.begin : segment.end, part.outs] += added[segment.begin : segment.end]
