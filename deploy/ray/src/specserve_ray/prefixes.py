"""Which replica has probably which prompts in its KV cache: hashes of blocks of text, per replica, bounded.

A prompt is a chain of hashes, each of all the text up to its block's end, so that a known hash means a known prefix.
What a replica has evicted is guessed: it keeps what was used last, as many blocks as its cache may hold. Knows neither
replicas nor loads.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Match(NamedTuple):
    """The longest known prefix of a prompt."""

    num_blocks: int
    replicas: tuple[str, ...]
    """Those that have all of it; empty where nothing is known."""


NO_MATCH = Match(0, ())


class PrefixTable:
    def __init__(self) -> None:
        self.blocks: dict[str, OrderedDict[bytes, None]] = {}
        """By replica, the least recently used first."""
        self.holders: dict[bytes, set[str]] = {}

    def longest(self, chain: Sequence[bytes]) -> Match:
        length, holders = 0, set[str]()
        for block in chain:
            found = self.holders.get(block)
            if found is None:
                break
            length, holders = length + 1, found
        return Match(length, tuple(holders))

    def add(self, replica: str, chain: Sequence[bytes], capacity: int) -> None:
        """The replica computes this prompt. `capacity`: the blocks that are kept for it."""
        blocks = self.blocks.setdefault(replica, OrderedDict())
        for block in reversed(chain[:capacity]):  # the last blocks of a chain are evicted before its first
            if block in blocks:
                blocks.move_to_end(block)
            else:
                blocks[block] = None
                self.holders.setdefault(block, set()).add(replica)
        while len(blocks) > capacity:
            self.forget(replica, blocks.popitem(last=False)[0])

    def drop(self, replica: str) -> None:
        """It is gone."""
        for block in self.blocks.pop(replica, ()):
            self.forget(replica, block)

    def forget(self, replica: str, block: bytes) -> None:
        holders = self.holders[block]
        holders.discard(replica)
        if not holders:
            del self.holders[block]

    def check_integrity(self) -> None:
        """Both maps say the same."""
        pairs = {(block, replica) for replica, blocks in self.blocks.items() for block in blocks}
        assert pairs == {(block, replica) for block, replicas in self.holders.items() for replica in replicas}
        assert all(self.holders.values()), "a block without holders is kept"
