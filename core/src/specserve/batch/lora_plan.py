"""Which rows of a batch use which adapter.

Knows nothing of files, names and requests, nor of the format of a packed adapter, which is the kernel set's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Segment(NamedTuple):
    """Rows [begin, end) and their adapter, as `KernelSet.pack_adapter` made it; None: the base model."""

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
        """The segments with an adapter, cut to `rows` and relative to its begin; equal rows get the same list."""
        key = rows.start, rows.stop
        if key not in self.cuts:
            self.cuts[key] = [
                Segment(max(begin, rows.start) - rows.start, min(end, rows.stop) - rows.start, adapter)
                for begin, end, adapter in self.segments
                if adapter is not None and begin < rows.stop and end > rows.start
            ]
        return self.cuts[key]
