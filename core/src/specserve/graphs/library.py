"""The graphs that were recorded, within a bound on their memory. A graph is recorded when a step first needs it.

A recording that fails is not the server's end: steps of that key run without it, and the reason is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from specserve.faults import FAULTS, reason_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.faults import FaultLog
    from specserve.graphs.memory import GraphMemory
    from specserve.graphs.recorded import RecordedStep
    from specserve.protocols import GraphMode, Recorder


class GraphKey(Protocol):
    """What a graph was recorded for; steps of another kind have another graph. Hashable."""

    @property
    def mode(self) -> GraphMode: ...

    @property
    def rows(self) -> int: ...


K = TypeVar("K", bound=GraphKey)


class GraphLibrary(Generic[K]):
    """`most_bytes`: of the memory and all recordings."""

    def __init__(self, recorder: Recorder, memory: GraphMemory, most_bytes: int, faults: FaultLog) -> None:
        self.recorder, self.memory, self.most_bytes, self.faults = recorder, memory, most_bytes, faults
        self.recorded: dict[K, RecordedStep] = {}
        self.failed: dict[K, str] = {}
        """Why there is none."""

    @property
    def num_bytes(self) -> int:
        return self.memory.num_bytes + self.recorder.num_bytes

    def find(self, key: K, make: Callable[[K], RecordedStep | str]) -> RecordedStep | str:
        """The graph, recorded if there is none yet; or why there is none. `make`: what is to be recorded, or why it
        cannot be."""
        found = self.recorded.get(key)
        if found is not None:
            return found
        if key not in self.failed:
            made = self.record(key, make)
            if not isinstance(made, str):
                self.recorded[key] = made
                return made
            self.failed[key] = made
        return self.failed[key]

    def record(self, key: K, make: Callable[[K], RecordedStep | str]) -> RecordedStep | str:
        if self.num_bytes > self.most_bytes:
            return f"the memory of graphs is used up: --graph-memory allows {self.most_bytes} bytes"
        try:
            made = make(key)
            if not isinstance(made, str):
                made.record(self.recorder)
        except FAULTS as error:
            self.faults.count("core", f"{key.mode} graph of {key.rows} rows", error, "; such steps run without it")
            return f"its recording {reason_of(error)}"
        return made
