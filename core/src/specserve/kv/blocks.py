"""Ownership of KV blocks and the prefix cache over them. Knows no tensors and no requests.

A block is in exactly one of three states: `free` (no content), held (by at least one request), or `idle` (held by no
request, its content still known by its hash; it may be held again or evicted, least recently used first). A held
block may be known by its hash too; then several requests may hold it.
"""

from __future__ import annotations

import hashlib
from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


def chain_hash(parent: bytes, tokens: Sequence[int]) -> bytes:
    """The hash of a block: of all tokens up to its end, through its parent's hash."""
    return hashlib.blake2b(parent + array("q", tokens).tobytes(), digest_size=16).digest()


def root_hash(namespace: str, arithmetic: str) -> bytes:
    """Where a chain starts: blocks of another namespace or another arithmetic never match."""
    return hashlib.blake2b(f"{arithmetic}\0{namespace}".encode(errors="surrogatepass"), digest_size=16).digest()


def mixed_hash(parent: bytes, offset: int, arithmetic: str) -> bytes:
    """The parent of a block whose tokens from `offset` on have another arithmetic than those before."""
    return hashlib.blake2b(parent + f"{offset}\0{arithmetic}".encode(), digest_size=16).digest()


class BlockPool:
    """Allocates, shares, caches and frees `num_blocks` blocks."""

    def __init__(self, num_blocks: int, forgotten: Callable[[bytes], object] = bool) -> None:
        """`forgotten` is told the hash of each block whose content is not known any more."""
        self.num_blocks, self.forgotten = num_blocks, forgotten
        self.free = list(range(num_blocks - 1, -1, -1))
        self.holders = [0] * num_blocks
        self.idle: dict[int, None] = {}
        """Insertion order is order of release: the first is evicted first."""
        self.by_hash: dict[bytes, int] = {}
        self.hash_of: dict[int, bytes] = {}

    @property
    def num_available(self) -> int:
        return len(self.free) + len(self.idle)

    @property
    def usage(self) -> float:
        """Share of blocks that requests hold."""
        return 1.0 - self.num_available / self.num_blocks

    def can_allocate(self, count: int) -> bool:
        return count <= self.num_available

    def allocate(self, count: int) -> list[int]:
        """Take `count` blocks, evicting idle ones where none is free. Ask `can_allocate` first."""
        assert self.can_allocate(count)
        blocks = []
        for _ in range(count):
            block = self.free.pop() if self.free else self.evict()
            self.holders[block] = 1
            blocks.append(block)
        return blocks

    def evict(self) -> int:
        block = next(iter(self.idle))
        del self.idle[block]
        h = self.hash_of.pop(block)
        del self.by_hash[h]
        self.forgotten(h)
        return block

    def drop_idle(self) -> None:
        """Forget the content of all idle blocks."""
        while self.idle:
            self.free.append(self.evict())

    def match(self, hashes: Iterable[bytes]) -> list[int]:
        """The blocks of the longest known run of `hashes`, from its front; nothing is taken yet."""
        found = []
        for h in hashes:
            block = self.by_hash.get(h)
            if block is None:
                break
            found.append(block)
        return found

    def hold(self, blocks: Iterable[int]) -> None:
        """Count one more holder of each of these known blocks."""
        for block in blocks:
            if self.holders[block] == 0:
                del self.idle[block]
            self.holders[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """Drop one hold of each; the last blocks of a chain are evicted before its first."""
        for block in reversed(blocks):
            assert self.holders[block] > 0
            self.holders[block] -= 1
            if self.holders[block] == 0:
                if block in self.hash_of:
                    self.idle[block] = None
                else:
                    self.free.append(block)

    def publish(self, block: int, h: bytes) -> bool:
        """The held block's content is final and known by `h`. A second block of the same content stays anonymous.
        Whether `h` was not known before."""
        assert self.holders[block] > 0
        if h in self.by_hash or block in self.hash_of:
            return False
        self.by_hash[h] = block
        self.hash_of[block] = h
        return True

    def check_integrity(self, held: Iterable[Sequence[int]]) -> None:
        """free + held + idle = total, holders are those of `held` (one list per request), hashes are one to one."""
        counts = [0] * self.num_blocks
        for blocks in held:
            for block in blocks:
                counts[block] += 1
        assert counts == self.holders, "a block's holders differ from the requests that list it"
        num_held = sum(c > 0 for c in counts)
        assert len(self.free) + num_held + len(self.idle) == self.num_blocks, "blocks were lost or doubled"
        assert not any(counts[b] for b in [*self.free, *self.idle]), "a free or idle block is held"
        assert len(set(self.free)) == len(self.free), "a block is free twice"
        assert set(self.idle) <= set(self.hash_of), "an idle block has no hash"
        assert {h: b for b, h in self.hash_of.items()} == self.by_hash, "hashes and blocks disagree"
