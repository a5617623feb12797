"""What a drafter has its draft model compute: committed tokens that the layers lack, and draft tokens behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve_draft_models.sequences import FedSequence


class Masks(NamedTuple):
    """What rows behind the last committed token read where a draft model proposes several tokens in one pass."""

    token: int
    hidden: Tensor
    """[1, W], in place of the target's hidden state."""


class Feed(NamedTuple):
    """A pass over committed tokens that the draft layers do not have yet."""

    batch: Batch
    """Spans of committed tokens. Those that are drafted for come first, and their last rows are scored, with the masks
    behind them."""
    hidden: Tensor | None
    """[R, W]: the target's hidden state of the position before each row's, of a mask its own; None where none are
    read."""
    sequences: Sequence[FedSequence]
    """The sequence of each span."""
    drafting: Sequence[int]
    """Indices of the target's batch: span i of this batch drafts for span drafting[i] of that one. Later spans do not
    draft."""


class DraftRows(NamedTuple):
    """The draft tokens of one request that a pass computes: nodes from `first` on of a tree whose earlier nodes were
    computed since the last `collect`."""

    sequence: FedSequence
    tokens: tuple[int, ...]
    """The tokens of all nodes."""
    parents: tuple[int, ...] | None = None
    """None: a chain."""
    first: int = 0
