"""What adapters add to a projection, in plain matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from specserve.batch.lora_plan import Segment


def add_in_full_height(
    linear: Callable[[Tensor, Tensor, None], Tensor],
    projection: str,
    x: Tensor,
    out: Tensor,
    segments: Sequence[Segment],
) -> None:
    """For kernels whose bits depend on the row count: all rows of x go through every adapter, and each segment takes
    its own. Adapters are their weights."""
    for adapter in {id(segment.adapter): segment.adapter for segment in segments}.values():
        for part in adapter.get(projection, ()):
            added = linear(linear(x, part.down, None), part.up, None)
            for segment in segments:
                if segment.adapter is adapter:
                    out[segment.begin : segment.end, part.outs] += added[segment.begin : segment.end]
