"""What layers without attention are told of a batch's rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.span_states import SpanStates


class TokenSlots(NamedTuple):
    """Slots of the KV cache. T: the batch's rows."""

    own: Tensor
    """[T] int64: the slot of each row; negative for padding, of which nothing is kept."""
    before: Tensor
    """[T, reach] int64: the slots of the tokens before it, the nearest first; slot 0 stands in where there is none."""
    exists: Tensor
    """[T, reach] bool."""
    padded: bool = False
    """Whether there may be padding."""


class StateRun(NamedTuple):
    """What is computed for one span: from its states, and its rows in the batch."""

    states: SpanStates
    first_row: int
    known: int
    parents: tuple[int, ...]
    """Of its draft tokens; -1 for children of the last committed token."""


class LoadedRuns(Protocol):
    """The runs of padded steps, as data. Empty at first."""

    @property
    def runs(self) -> Sequence[StateRun]:
        """What `RecurrentMixer.mix` gets. Rows of no run are padding, whose output is undefined."""
        ...

    def clear(self) -> None:
        """No runs."""
        ...

    def load(self, runs: Sequence[StateRun]) -> str:
        """Those of the step that is replayed next. Empty, or why they do not fit: as in "its draft trees have too many
        tokens"."""
        ...
