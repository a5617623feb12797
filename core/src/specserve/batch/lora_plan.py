"""Which rows of a batch use which adapter.

Knows nothing of files, names and requests, nor of the format of a packed adapter, which is the kernel set's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Segment(NamedTuple):
    """Rows [begin, end) and their adapter, as `KernelSet.pack_adapter` made it; None: the base model."""

    begin: int
    end: int
    adapter: Any


def adapted(segments: Sequence[Segment], begin: int, end: int) -> list[Segment]:
    """Those with an adapter, cut to the rows [begin, end) and relative to the first of these."""
    return [
        Segment(max(first, begin) - begin, min(last, end) - begin, adapter)
        for first, last, adapter in segments
        if adapter is not None and first < end and last > begin
    ]


@dataclass(slots=True)
class LoraPlan:
    """Every row of a batch in one segment, in order. One plan serves all layers."""

    segments: Sequence[Segment]
    rank: int = 0
    """The highest among the adapters."""
    cuts: dict[tuple[int, int], Sequence[Segment]] = field(default_factory=dict, compare=False, repr=False)
    """What `adapted` gave: every projection of every layer asks for the same tiles."""

    def adapted(self, rows: slice) -> Sequence[Segment]:
        """The segments with an adapter, cut to `rows` and relative to its begin; equal rows get the same object."""
        key = rows.start, rows.stop
        if key not in self.cuts:
            self.cuts[key] = adapted(self.segments, rows.start, rows.stop)
        return self.cuts[key]


class HostAdapters:
    """`specserve.protocols.GraphAdapters` for kernel sets that read the segments in every call."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []

    def load(self, segments: Sequence[Segment]) -> None:
        """Those of the next step."""
        self.segments[:] = segments

    def forget(self) -> None:
        """The step is over."""
        self.segments.clear()
