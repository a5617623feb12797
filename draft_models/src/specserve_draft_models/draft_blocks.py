"""What is known of a draft model's part of each KV block: whether it is complete, and its last hidden state.

A block that the prefix cache hands out again is used by the draft layers only where they had completed it for the same
tokens. The hidden state of its last position is what the pair at the next position needs.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from specserve.batch.row_tensors import to_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.request import Request


class DraftBlocks:
    """`states`: [num_blocks, W], or None where no hidden states are read."""

    def __init__(self, states: Tensor | None) -> None:
        self.states = states
        self.hash_of: dict[int, bytes] = {}
        """Block -> chain hash of the tokens for which it is complete."""
        self.fed_in: dict[int, int] = {}
        """Block -> the number of the latest feed into it."""
        self.num_feeds = 0

    def finalize(self, request: Request, blocks: Sequence[int], index: int) -> None:
        """Block number `index` of the request, whose blocks these are, is complete in the draft layers."""
        if index < len(request.hashes):
            self.hash_of[blocks[index]] = request.hashes[index]

    def reopen(self, blocks: Sequence[int]) -> int:
        """Other tokens are about to be fed into these blocks: what was noted of their former ones is void. The number
        of that feed."""
        self.num_feeds += 1
        for block in blocks:
            self.hash_of.pop(block, None)
            self.fed_in[block] = self.num_feeds
        return self.num_feeds

    def has(self, blocks: Sequence[int], hashes: Sequence[bytes]) -> bool:
        """Whether these blocks, which the prefix cache has for these hashes, are all complete."""
        return self.num_complete(blocks, hashes) == len(blocks)

    def num_complete(self, blocks: Sequence[int], hashes: Sequence[bytes]) -> int:
        """How many of them are before the first that is not."""
        pairs = zip(blocks, hashes, strict=False)
        return sum(1 for _ in takewhile(lambda pair: self.hash_of.get(pair[0]) == pair[1], pairs))

    def save_states(self, blocks: Sequence[int], rows: Tensor) -> None:
        """rows: [n, W], the hidden state of each block's last position."""
        assert self.states is not None
        self.states.index_copy_(0, to_device(blocks, self.states.device), rows)

    def state(self, block: int) -> Tensor:
        """[W]."""
        assert self.states is not None
        return self.states[block]
