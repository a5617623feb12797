"""Passes of a draft model, which a kernel set may fuse.

Letters: R rows of a pass, W numbers of the target's hidden state, H of the draft model's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.batch.request import Request
    from specserve.protocols.sampling import DraftToken, ScoredRow


class DraftStep(NamedTuple):
    """What a pass of a draft model gives for its scored rows."""

    tokens: list[list[DraftToken]]
    """The best next tokens of each row, best first."""
    hidden: Tensor | None
    """[n, H]: own hidden states, which the pass over the next draft tokens reads; None where none are read."""


class DraftChains(NamedTuple):
    """What several passes of a draft model give."""

    tokens: list[list[DraftToken]]
    """The chain after each scored row of the first pass; shorter than wanted if there is no further token."""
    hidden: Tensor | None
    """[n, H]: own hidden states that these rows' next passes read; None where none are read."""
    seconds: float
    """Wall time of the passes after the first."""
    num_passes: int
    """Passes after the first."""


class BlockRows(NamedTuple):
    """What a pass over blocks gives for the rows that propose, block by block."""

    logits: Tensor
    """[n, D] float32, without what a Markov head adds. Valid until the next pass."""
    states: Tensor | None
    """[n, H]: own hidden states behind the final norm; None where no part of the head reads them."""


class DraftPass(ABC):
    """Passes of a draft model: token and hidden state in, tokens and hidden state out."""

    @abstractmethod
    def step(
        self, batch: Batch, hidden: Tensor | None, rows: Sequence[ScoredRow], count: int, *, from_target: bool
    ) -> DraftStep:
        """hidden: [R, W] from the target, or [R, H] of an earlier pass; it is not changed. rows: the scored rows of
        the batch in order, numbered from 0, of which at most `count` tokens each are wanted."""

    def chains(
        self, batch: Batch, hidden: Tensor | None, rows: Sequence[ScoredRow], steps: Sequence[int]
    ) -> DraftChains | None:
        """As `step` over committed tokens, each scored row being its request's last; each row's best token is then the
        input of its next pass, with the bits of `step`. Row i wants a chain of steps[i] tokens, at least one. None: go
        on pass by pass."""
        return None


class BlockPass(DraftPass):
    """Passes of a block head. `step` computes nothing but the keys and values of committed tokens: no row is scored,
    and no tokens come back."""

    @abstractmethod
    def draft(
        self, committed: Batch, hidden: Tensor, blocks: Batch, requests: Sequence[Request], wanted: Sequence[int]
    ) -> list[list[DraftToken]]:
        """`step` over the committed tokens, whose hidden states are [R, W], and then a pass over one block for each
        request: its last token and mask tokens. The chain of each request, of at most wanted[i] draft tokens, at least
        one, and the probability that each is accepted if those before it are; shorter where there is no further
        token."""

    def rows(self, committed: Batch, hidden: Tensor, blocks: Batch, wanted: Sequence[int]) -> BlockRows | None:
        """As `draft`, as far as the logits of the first wanted[i] rows of each block that propose. None: the pieces
        compute them."""
        return None
