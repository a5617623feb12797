"""Which loaded adapters are evicted for another one, and the error where too few can be.

Owns the limits and the order of eviction: least recently used first, never a pinned one. Knows nothing of names'
present versions, of files or of locks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from specserve_lora.errors import AdapterCapacityError

if TYPE_CHECKING:
    from collections.abc import Collection


@dataclass(slots=True, eq=False, weakref_slot=True)
class LoadedAdapter:
    """One version in memory."""

    name: str
    id: str
    """Of the version: `specserve.api.adapter_id`."""
    packed: Any
    """As `AdaptableModel.pack_adapter` made it."""
    rank: int
    """The highest of its parts."""
    num_bytes: int
    last_used: int
    """A counter's value: the least recently used adapter has the lowest."""
    num_pins: int = 0
    """Requests that use it."""


class CacheLimits(NamedTuple):
    """How many versions may be in memory, and how many bytes their weights may have together."""

    max_loaded: int
    max_memory: int


def total_bytes(loaded: Collection[LoadedAdapter]) -> int:
    return sum(adapter.num_bytes for adapter in loaded)


def evictable(
    loaded: Collection[LoadedAdapter], num_bytes: int, replaced: str | None, limits: CacheLimits
) -> list[LoadedAdapter]:
    """What to evict for one more adapter of this size: the version `replaced` first, then in LRU order.

    AdapterCapacityError where the unpinned ones do not suffice.
    """
    unpinned = [adapter for adapter in loaded if not adapter.num_pins]
    unpinned.sort(key=lambda adapter: (adapter.id != replaced, adapter.last_used))
    size, count = total_bytes(loaded) + num_bytes, 0
    while len(loaded) - count >= limits.max_loaded or size > limits.max_memory:
        if count == len(unpinned):
            raise AdapterCapacityError(
                f"there is no room for another adapter: requests use {len(loaded) - len(unpinned)} of {len(loaded)} in "
                f"memory. lora.max_loaded allows {limits.max_loaded}, lora.max_memory {limits.max_memory} bytes, of "
                f"which {total_bytes(loaded)} are taken and {num_bytes} wanted. Try again when requests have ended, or "
                "raise the option."
            )
        size -= unpinned[count].num_bytes
        count += 1
    return unpinned[:count]
