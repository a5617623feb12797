"""What stands in place of attention in some layers: a mixer of a token with a few tokens before it.

A mixer keeps some numbers of each token in the slots of the KV cache, like a key. So prefix hits, chunks, preemption
and branching drafts need no state of a request, and a rejected draft token leaves nothing behind. Letter: T rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.batch.preceding import PrecedingTokens


class Mixer(ABC):
    """Rows map to rows, and a row's bits depend on its own token path alone."""

    token_width: int
    """Numbers of the model's dtype that it keeps of each token."""
    reach: int
    """How many tokens before a row it reads."""
    out_features: int
    """Numbers of a row that it gives to the layer's output map."""
    takes_padding: bool = False
    """Whether rows may have a negative slot: nothing is kept of them, and what comes out for them is undefined. Full
    graphs need it."""

    @abstractmethod
    def mix(self, rows: Tensor, kept: Tensor, tokens: PrecedingTokens) -> Tensor:
        """rows: [T, n], what the layer's input map gives; kept: [slots, token_width], the layer's part of the cache, in
        which those of the rows are to be written -> [T, out_features], a fresh tensor of the same dtype. Called again
        with the same rows, it writes and returns the same."""
