"""A batch of events as it is written: the format of vLLM's KV events, in msgpack.

    payload    [time in seconds, events, data parallel rank]
    event      a map with the key "type", or an array that begins with it

A hash is the last 8 bytes of the engine's 16, as an unsigned integer: what every reader of the format takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.api import BlocksRemoved, BlocksStored, adapter_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.api import CacheChange

MEDIUM = "GPU"
"""The tier that attention reads, whatever the device is: readers give blocks of other tiers less weight."""
RANK = 0
"""There is one engine."""

ExtraKeys = list[str]


class BlockStored(msgspec.Struct, tag="BlockStored", frozen=True):
    """Blocks that follow each other, the first one behind the parent."""

    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: tuple[int, ...]
    block_size: int
    lora_id: int | None
    medium: str
    lora_name: str | None
    extra_keys: list[ExtraKeys | None] | None
    """Of each block what its hash depends on beside tokens: the adapter's name, and in the first block of a text the
    cache salt. None where no block has any."""


class BlockRemoved(msgspec.Struct, tag="BlockRemoved", frozen=True):
    block_hashes: list[int]
    medium: str


class AllBlocksCleared(msgspec.Struct, tag="AllBlocksCleared", frozen=True):
    pass


class BlockStoredArray(BlockStored, tag="BlockStored", array_like=True, frozen=True):
    pass


class BlockRemovedArray(BlockRemoved, tag="BlockRemoved", array_like=True, frozen=True):
    pass


class AllBlocksClearedArray(AllBlocksCleared, tag="AllBlocksCleared", array_like=True, frozen=True):
    pass


class Batch(msgspec.Struct, array_like=True, frozen=True):
    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int = RANK


class BatchWriter:
    """Writes events of one of two forms: the three classes that it is given."""

    def __init__(
        self,
        block_size: int,
        stored: type[BlockStored] = BlockStored,
        removed: type[BlockRemoved] = BlockRemoved,
        cleared: type[AllBlocksCleared] = AllBlocksCleared,
    ) -> None:
        self.block_size, self.stored, self.removed, self.cleared = block_size, stored, removed, cleared
        self.encoder = msgspec.msgpack.Encoder()

    def write(self, seconds: float, changes: Sequence[CacheChange]) -> bytes:
        """`seconds`: of the epoch."""
        return self.encoder.encode(Batch(seconds, [self.event(change) for change in changes]))

    def event(self, change: CacheChange) -> BlockStored | BlockRemoved | AllBlocksCleared:
        if isinstance(change, BlocksStored):
            return self.stored(
                block_hashes=[short_hash(h) for h in change.hashes],
                parent_block_hash=None if change.parent is None else short_hash(change.parent),
                token_ids=change.token_ids,
                block_size=self.block_size,
                lora_id=None,
                medium=MEDIUM,
                lora_name=adapter_name(change.adapter) or None,
                extra_keys=extra_keys(change),
            )
        if isinstance(change, BlocksRemoved):
            return self.removed([short_hash(h) for h in change.hashes], MEDIUM)
        return self.cleared()


def make_writer(encoding: str, block_size: int) -> BatchWriter:
    if encoding == "array":
        return BatchWriter(block_size, BlockStoredArray, BlockRemovedArray, AllBlocksClearedArray)
    return BatchWriter(block_size)


def short_hash(h: bytes) -> int:
    return int.from_bytes(h[-8:], "big")


def extra_keys(change: BlocksStored) -> list[ExtraKeys | None] | None:
    adapter = [adapter_name(change.adapter)] if change.adapter else []
    begins = change.parent is None and change.cache_salt is not None
    first = [*adapter, change.cache_salt] if begins and change.cache_salt is not None else adapter
    keys: list[ExtraKeys | None] = [first or None, *[adapter or None] * (len(change.hashes) - 1)]
    return keys if any(keys) else None
