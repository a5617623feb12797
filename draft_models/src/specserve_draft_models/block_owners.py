"""Feeds what waits for blocks of the prefix cache: blocks that it gave to a request, and those of requests that ended.

An owner of a block is a request that computed its tokens, so that its hidden states may wait. It runs, waits after it
gave its blocks back, or has just ended. Without what waits, whoever is given the block could not be drafted for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from specserve.batch.request import Request
    from specserve.protocols import DraftLayers, DraftResources
    from specserve_draft_models.feeds import Feeds, Reading
    from specserve_draft_models.sequences import FedSequence


class BlockOwners:
    """`complete` computes what these readings lack."""

    def __init__(
        self,
        layers: DraftLayers,
        resources: DraftResources,
        feeds: Feeds,
        complete: Callable[[list[Reading]], object],
    ) -> None:
        self.feeds, self.complete, self.draft_blocks = feeds, complete, feeds.draft_blocks
        self.block_size, self.cached_blocks = resources.block_size, resources.cached_blocks
        self.first_position = int(layers.reads_hidden)
        """The first that has a key."""

    def complete_given(self, request: Request, num_blocks: int, owners: Iterable[FedSequence]) -> None:
        """The prefix cache gave the request its first blocks, so that they still hold their tokens."""
        blocks = request.blocks[:num_blocks]
        for owner in sorted(owners, key=lambda sequence: sequence.num_finalized):
            shared = num_shared(owner, blocks, request.hashes)
            if not owner.is_complete or shared <= owner.num_finalized:
                continue
            if owner.holds_blocks:
                self.complete([self.feeds.idle(owner, shared)])
            else:
                self.follow(owner, blocks[:shared], request.hashes)

    def complete_left(self, owner: FedSequence) -> None:
        """The owner ended, outside of a step or after it gave its blocks back: the prefix cache may have them still."""
        hashes = owner.request.hashes[: len(owner.blocks)]
        blocks = self.cached_blocks(hashes) if hashes else ()
        shared = num_shared(owner, blocks, hashes)
        if owner.is_complete and shared > owner.num_finalized:
            self.follow(owner, blocks[:shared], hashes)

    def follow(self, owner: FedSequence, blocks: Sequence[int], hashes: Sequence[bytes]) -> None:
        """Feed these blocks, which hold the owner's tokens, unless what it was fed lies elsewhere."""
        index = owner.num_finalized
        first = max(index * self.block_size, self.first_position)
        is_there = owner.num_fed <= first or owner.blocks[index] == blocks[index]
        if is_there and self.draft_blocks.has(blocks[:index], hashes):
            owner.blocks[: len(blocks)] = blocks
            self.complete([self.feeds.idle(owner, len(blocks))])


def num_shared(owner: FedSequence, blocks: Sequence[int], hashes: Sequence[bytes]) -> int:
    """The leading ones of these blocks up to the last one that the owner computed."""
    pairs = zip(owner.blocks, owner.request.hashes, blocks, hashes, strict=False)
    return max((i + 1 for i, (mine, h, block, other) in enumerate(pairs) if mine == block and h == other), default=0)
