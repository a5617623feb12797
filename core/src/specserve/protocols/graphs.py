"""Graphs: forward passes that are recorded once and replayed, over memory at addresses that stay.

A *full* graph is the whole pass of a decode or verify step. A *piecewise* one is everything but the attention calls,
which run between its pieces. Steps are padded up to a bucket of rows; how long requests are, how their rows are spread
among them, and which adapters they use is data in that memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

import msgspec

from specserve.protocols.attention import GraphMode, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from specserve.batch.lora_plan import Segment


class GraphShape(msgspec.Struct, frozen=True, kw_only=True):
    """A step that may be replayed from a graph, as plugins see it. The step's own numbers, not its bucket's."""

    mode: GraphMode
    rows: int
    requests: int
    widest: int
    """Rows of the request that has most."""
    phases: tuple[Phase, ...]
    """The phases of its rows."""
    hidden_layers: tuple[int, ...]
    """The layers whose hidden states are wanted."""
    lora_segments: int
    """Runs of rows under one adapter; 0 where no row has one."""
    lora_rank: int
    """The highest rank among the adapters."""
    has_trees: bool
    """Do draft tokens branch?"""
    is_draft_model: bool = False
    """Is it a pass of a draft model? Otherwise it is a step of the target, or a pass of it that drafts."""


class AdapterLimits(NamedTuple):
    """The most that a recorded step has."""

    rows: int
    segments: int
    rank: int


class RunLimits(NamedTuple):
    """The most that a recorded step of a model with recurrent layers has."""

    rows: int
    requests: int
    nodes: int
    """Draft tokens of a request."""
    slots: int
    """Of states whose step may have drafted: the rows of `LayerStates.trails`."""


class GraphAdapters(Protocol):
    """Low-rank additions of padded steps, as data. Empty at first."""

    @property
    def segments(self) -> Sequence[Segment]:
        """What `KernelSet.add_low_rank` gets: the same object in every step. It counts as true where kernels must be
        recorded for it while it is empty."""
        ...

    def load(self, segments: Sequence[Segment]) -> None:
        """Those of the step that is replayed next."""
        ...

    def forget(self) -> None:
        """The step was replayed: keep no adapter in memory, which may be evicted before the next one."""
        ...


Cut: TypeAlias = "Callable[[Callable[[], None]], None]"
"""`cut(action)` ends a piece: `action` is not recorded but runs there in every replay."""


class Recording(Protocol):
    """A recorded pass."""

    def replay(self) -> None:
        """Do again what was recorded, with what the memory holds now."""
        ...


class Recorder(Protocol):
    """Records what a function does to the memory that it reads and writes, none of which may be given back while the
    recording is used."""

    name: str
    calls_again: bool
    """Does a replay call the function again? Otherwise it does what the function did when it was recorded."""

    def record(self, function: Callable[[Cut], None]) -> Recording:
        """The function may run any number of times meanwhile, and its actions not at all. Raises what it raises, and
        where something in it cannot be recorded."""
        ...

    @property
    def num_bytes(self) -> int:
        """Memory that the recordings hold beside the memory of their callers."""
        ...
