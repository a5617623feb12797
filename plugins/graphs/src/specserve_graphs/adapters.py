"""A LoRA plan for recorded passes: the same object in every step, whose adapters are loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api.batch import LoraPlan, Segment, adapted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from specserve.api import GraphAdapters


class GraphLora(LoraPlan):
    """`make`: memory for the adapters of some rows. It is asked while the pass is recorded."""

    def __init__(self, make: Callable[[], GraphAdapters]) -> None:
        self.own: list[Segment] = []
        super().__init__(self.own)
        self.make = make
        self.loaded: dict[tuple[int, int], GraphAdapters] = {}

    def adapted(self, rows: slice) -> Sequence[Segment]:
        key = rows.start, rows.stop
        if key not in self.loaded:
            self.loaded[key] = self.make()
        return self.loaded[key].segments

    def load(self, plan: LoraPlan) -> None:
        self.own[:] = plan.segments
        for (begin, end), adapters in self.loaded.items():
            adapters.load(adapted(plan.segments, begin, end))

    def forget(self) -> None:
        """Between steps no adapter is kept in memory."""
        self.own.clear()
        for adapters in self.loaded.values():
            adapters.forget()
