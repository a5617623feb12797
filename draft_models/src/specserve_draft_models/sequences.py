"""What a draft model has of one request: which positions, which hidden states wait, which of its blocks are complete.

Positions below `num_fed` have keys and values in the draft layers. Where the layers read hidden states, those of the
positions [num_fed - 1, num_computed) wait: the pair of hidden state p and token p + 1 is fed at position p + 1.
They lie in `latest` and `long`, and else in the ring.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.request import Request


NO_ROWS: tuple[int, Sequence[int]] = (0, ())


@dataclass(slots=True, eq=False)
class FedSequence:
    """A request as the draft layers have it."""

    request: Request
    table: list[int] = field(default_factory=list)
    """Blocks of the latest draft batch: the request's, and scratch blocks behind them."""
    num_fed: int = 0
    num_computed: int = -1
    """Positions below this were computed by the target and committed; -1 before the first step."""
    num_finalized: int = 0
    """Leading blocks that are complete in the draft layers and noted as such."""
    num_preemptions: int = 0
    blocks: list[int] = field(default_factory=list)
    """Its complete blocks, also after it gave them back: until they are used again they hold its tokens."""
    latest: tuple[int, Sequence[int]] = NO_ROWS
    """Hidden states of the latest steps: (first position, rows of these steps)."""
    place: int = -1
    """In the ring of hidden states; -1 before it has any."""
    long: list[tuple[int, Tensor]] = field(default_factory=list)
    """Hidden states that the ring has no room for, in order: (first position, [n, W])."""
    latest_feed: int = 0
    """The number of the latest feed of it, as `DraftBlocks.fed_in` has it of blocks."""
    is_copy: bool = False
    """Whether what waits of it waits of another sequence, which keeps it."""
    is_complete: bool = True
    """Whether the draft layers have, or can be fed, every position; nothing is drafted where they cannot."""

    @classmethod
    def of(cls, request: Request) -> FedSequence:
        return cls(request, num_preemptions=request.num_preemptions)

    @property
    def holds_blocks(self) -> bool:
        """Whether its complete blocks are still the request's."""
        return self.request.blocks[: len(self.blocks)] == self.blocks

    def was_restarted(self, start: int) -> bool:
        """Whether a step from position `start` on does not continue this sequence."""
        return start != self.num_computed or self.request.num_preemptions != self.num_preemptions

    def restart(self, num_fed: int, blocks: Sequence[int]) -> None:
        """Continue behind these blocks of the prefix cache."""
        self.num_fed, self.num_finalized, self.blocks = num_fed, len(blocks), list(blocks)
        self.num_preemptions = self.request.num_preemptions
        self.long = []
        self.is_complete = True

    def give_up(self) -> None:
        """Draft no more for this request: a later pass could not see all that is before."""
        self.is_complete = False
        self.long = []
