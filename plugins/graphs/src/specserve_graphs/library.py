"""The graphs that were recorded, within a bound on their memory. A graph is recorded when a step first needs it.

A recording that fails is not the server's end: steps of that key run without it, and the reason is kept.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from specserve.api import FAULTS, reason_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.api import GraphMode, Recorder
    from specserve.api.graphs import EngineMetrics
    from specserve_graphs.memory import GraphMemory
    from specserve_graphs.recorded import RecordedStep


class GraphKey(Protocol):
    """What a graph was recorded for; steps of another kind have another graph. Hashable."""

    @property
    def mode(self) -> GraphMode: ...

    @property
    def rows(self) -> int: ...


K = TypeVar("K", bound=GraphKey)


class GraphBudget:
    """What all graphs of an engine may take: the buffers of the target and of draft models, and all recordings."""

    def __init__(self, recorder: Recorder, max_bytes: int) -> None:
        self.recorder, self.max_bytes = recorder, max_bytes
        self.memories: list[GraphMemory] = []

    @property
    def num_bytes(self) -> int:
        return self.recorder.num_bytes + sum(memory.num_bytes for memory in self.memories)


class GraphLibrary(Generic[K]):
    """The graphs of one model."""

    def __init__(self, budget: GraphBudget, memory: GraphMemory, metrics: EngineMetrics) -> None:
        self.budget, self.memory, self.metrics = budget, memory, metrics
        budget.memories.append(memory)
        self.recorded: dict[K, RecordedStep] = {}
        self.failed: dict[K, str] = {}
        """Why there is none."""

    def find(self, key: K, make: Callable[[K], RecordedStep | str]) -> RecordedStep | str:
        """The graph, recorded if there is none yet; or why there is none. `make`: what is to be recorded, or why it
        cannot be."""
        found = self.recorded.get(key)
        if found is not None:
            return found
        if key not in self.failed:
            began = time.perf_counter()
            made = self.record(key, make)
            self.metrics.graph_recording_seconds += time.perf_counter() - began
            if not isinstance(made, str):
                self.recorded[key] = made
                return made
            self.failed[key] = made
        return self.failed[key]

    def record(self, key: K, make: Callable[[K], RecordedStep | str]) -> RecordedStep | str:
        budget = self.budget
        if budget.num_bytes > budget.max_bytes:
            return f"the memory of graphs is used up: --graph-memory allows {budget.max_bytes} bytes"
        try:
            made = make(key)
            if not isinstance(made, str):
                made.record(budget.recorder)
        except FAULTS as error:
            self.metrics.faults.count(
                "graphs", f"{key.mode} graph of {key.rows} rows", error, "; such steps run without it"
            )
            return f"its recording {reason_of(error)}"
        return made
