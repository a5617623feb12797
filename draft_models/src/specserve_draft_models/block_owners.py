"""Feeds what waits for blocks of the prefix cache: blocks that it gave to a request, and those of requests that ended.

An owner of a block is a request that computed its tokens, so that its hidden states may wait. It runs, waits after it
gave its blocks back, or has just ended. Without what waits, whoever is given the block could not be drafted for.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from specserve_draft_models.sequences import FedSequence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from specserve.batch.request import Request
    from specserve.protocols import DraftLayers, DraftResources
    from specserve_draft_models.feeds import Feeds, Reading


class BlockOwners:
    """`complete` computes what these readings lack."""

    def __init__(
        self,
        layers: DraftLayers,
        resources: DraftResources,
        feeds: Feeds,
        complete: Callable[[list[Reading]], object],
    ) -> None:
        self.feeds, self.complete = feeds, complete
        self.draft_blocks, self.pending = feeds.draft_blocks, feeds.pending
        self.block_size, self.cached_blocks = resources.block_size, resources.cached_blocks
        self.first_position = int(layers.reads_hidden)
        """The first that has a key."""

    def complete_given(self, request: Request, num_blocks: int, owners: Iterable[FedSequence]) -> None:
        """The prefix cache gave the request its first blocks, so that they still hold their tokens.

        Where an owner has other copies of some of them, those that were given are fed before its own: what was fed
        waits for no other copy."""
        blocks, hashes = request.blocks[:num_blocks], request.hashes
        for owner in sorted(owners, key=lambda sequence: sequence.num_finalized):
            if owner.is_complete:
                own = num_own(owner, blocks, hashes)
                if owner.blocks[:own] == blocks[:own]:
                    self.complete_own(owner, own)
                self.follow(owner, blocks, hashes)
                if not self.draft_blocks.has(blocks[:own], hashes):
                    self.complete_own(owner, own)

    def complete_own(self, owner: FedSequence, count: int) -> None:
        """Feed the first `count` of the owner's blocks, if it still holds them."""
        if owner.holds_blocks and count > owner.num_finalized:
            self.complete([self.feeds.idle(owner, count)])

    def complete_left(self, owner: FedSequence) -> None:
        """The owner ended, outside of a step or after it gave its blocks back: the prefix cache may have them still."""
        hashes = owner.request.hashes[: len(owner.blocks)]
        if owner.is_complete and hashes:
            self.follow(owner, self.cached_blocks(hashes), hashes)

    def follow(self, owner: FedSequence, blocks: Sequence[int], hashes: Sequence[bytes]) -> None:
        """Feed these blocks, as far as they hold the owner's tokens, also where it has others with the same tokens.
        What was fed into a part of such a block does not wait any more, and is nowhere else."""
        shared, index = num_same(owner, blocks, hashes), self.draft_blocks.num_complete(blocks, hashes)
        if index >= shared:
            return
        first = max(index * self.block_size, self.first_position)
        is_partly_fed = owner.num_fed > first and self.has_part(owner, index, blocks[index])
        if owner.num_fed <= first or is_partly_fed:
            begin, end = owner.num_fed if is_partly_fed else first, shared * self.block_size
            copy = FedSequence(
                owner.request, num_fed=begin, num_computed=end, num_finalized=index, blocks=[*blocks[:shared]],
                is_copy=True,
            )  # fmt: skip
            if self.pending is not None:
                copy.long = self.pending.copied(owner, begin - 1, end)
            self.complete([self.feeds.idle(copy)])

    def has_part(self, owner: FedSequence, index: int, block: int) -> bool:
        """Whether the block has the part of the owner's block number `index` that was fed, and nothing since."""
        is_latest = owner.num_finalized == index and self.draft_blocks.fed_in.get(block) == owner.latest_feed
        return is_latest and owner.blocks[index] == block


def num_own(owner: FedSequence, blocks: Sequence[int], hashes: Sequence[bytes]) -> int:
    """The leading ones of these blocks up to the last one that is the owner's."""
    pairs = zip(owner.blocks, owner.request.hashes, blocks, hashes, strict=False)
    return max((i + 1 for i, (mine, h, block, other) in enumerate(pairs) if mine == block and h == other), default=0)


def num_same(owner: FedSequence, blocks: Sequence[int], hashes: Sequence[bytes]) -> int:
    """The leading ones of these blocks whose tokens are the owner's."""
    pairs = zip(owner.blocks, owner.request.hashes, blocks, hashes, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[1] == pair[3], pairs))
