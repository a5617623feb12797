"""Low-rank additions to projections: the arithmetic half of LoRA (Hu et al., 2021), as data that kernel sets compute.

Owns what an adapter is to a kernel, and which rows of a batch are under which. Knows nothing of files, names and
requests. Letters: T rows, r rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.protocols import KernelSet


class LowRankPart(NamedTuple):
    """Adds (x @ down.T) @ up.T to the outputs `outs` of a projection."""

    down: Tensor
    """[r, in]"""
    up: Tensor
    """[len(outs), r], with the adapter's scale multiplied in."""
    outs: slice


AdapterWeights = Mapping[str, tuple[LowRankPart, ...]]
"""By projection name; a fused projection has a part for each of its own that the adapter changes."""


class Segment(NamedTuple):
    """Rows [begin, end) and their adapter, as `KernelSet.pack_adapter` made it; None: the model as it is."""

    begin: int
    end: int
    adapter: Any


@dataclass(frozen=True, slots=True)
class LoraPlan:
    """Every row of a batch in one segment, in order. One plan serves all layers."""

    segments: tuple[Segment, ...]
    cuts: dict[tuple[int, int], list[Segment]] = field(default_factory=dict, compare=False, repr=False)
    """What `adapted` gave: every projection of every layer asks for the same tiles."""

    def adapted(self, rows: slice) -> list[Segment]:
        """The segments with an adapter, cut to `rows` and counted from its begin; for equal rows the same list."""
        key = rows.start, rows.stop
        if key not in self.cuts:
            self.cuts[key] = [
                Segment(max(begin, rows.start) - rows.start, min(end, rows.stop) - rows.start, adapter)
                for begin, end, adapter in self.segments
                if adapter is not None and begin < rows.stop and end > rows.start
            ]
        return self.cuts[key]


class LowRankDelta:
    """The delta of one projection: to every segment what its adapter adds there. A kernel set that fuses layers may
    know it and take the plan itself."""

    def __init__(self, projection: str, kernels: KernelSet) -> None:
        self.projection, self.kernels = projection, kernels

    def __call__(self, x: Tensor, out: Tensor, rows: slice, plan: LoraPlan | None) -> None:
        """x: [T, in], out: [T, out]."""
        segments = plan.adapted(rows) if plan is not None else ()
        if segments:
            self.kernels.add_low_rank(self.projection, x, out, segments)


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
