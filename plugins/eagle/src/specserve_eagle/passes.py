"""One pass of a draft model over rows: what all kinds of draft models have in common.

Letters: R rows, n scored rows, H hidden size, D draft vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.protocols import DraftLayers, DraftRuntime, Feed


class DraftStep(NamedTuple):
    """What a pass gives for its scored rows."""

    logits: Tensor
    """[n, D] float32."""
    hidden: Tensor | None
    """[n, H]: the draft model's own hidden states, which the pass over the next draft tokens reads; None where a draft
    model reads none."""


class Lookahead(NamedTuple):
    """How far behind the committed tokens a draft model computes."""

    num_rows: int
    """Rows of one request at most, the last committed token among them."""
    has_trees: bool


class DraftModel(Protocol):
    """Token and hidden state in, hidden state and logits out."""

    layers: DraftLayers
    hidden_layers: tuple[int, ...]
    """Layers of the target whose outputs it reads."""
    draft_ids: Tensor | None
    """[D] int64: the target's ids of its vocabulary; None where both are the same."""

    def connect(self, runtime: DraftRuntime) -> None:
        """Called once, before any pass."""
        ...

    def read_committed(self, feed: Feed) -> DraftStep:
        """A pass over committed tokens."""
        ...

    def read_drafted(self, batch: Batch, hidden: Tensor | None) -> DraftStep:
        """A pass over draft tokens; hidden: [R, H], what the pass before gave for each row's parent."""
        ...
