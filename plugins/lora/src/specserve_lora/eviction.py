"""Who must go when another adapter comes, and the error where nobody may.

Owns the limits and the order of eviction; knows nothing of names' present versions, of files or of locks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from specserve_lora.errors import NoRoomError

if TYPE_CHECKING:
    from collections.abc import Collection


@dataclass(slots=True, eq=False)
class Loaded:
    """One version in memory. `used` orders by last use, `pins` counts the requests that use it."""

    name: str
    namespace: str
    packed: Any
    num_bytes: int
    used: int
    pins: int = 0


class Limits(NamedTuple):
    """How many versions may be in memory, and how many bytes their weights may have together."""

    max_loaded: int
    max_memory: int


def bytes_of(loaded: Collection[Loaded]) -> int:
    return sum(each.num_bytes for each in loaded)


def victims(loaded: Collection[Loaded], num_bytes: int, leaving: str | None, limits: Limits) -> list[Loaded]:
    """Who must go for one more of this size: the namespace `leaving` first, then whoever was used longest ago; never
    one with a pin. NoRoomError where not enough may go."""
    unused = [each for each in loaded if not each.pins]
    unused.sort(key=lambda each: (each.namespace != leaving, each.used))
    size, going = bytes_of(loaded) + num_bytes, 0
    while len(loaded) - going >= limits.max_loaded or size > limits.max_memory:
        if going == len(unused):
            raise NoRoomError(
                f"there is no room for another adapter: requests use {len(loaded) - len(unused)} of {len(loaded)} in "
                f"memory. lora.max_loaded allows {limits.max_loaded}, lora.max_memory {limits.max_memory} bytes, of "
                f"which {bytes_of(loaded)} are taken and {num_bytes} wanted. Try again when requests have ended, or "
                "raise the option."
            )
        size -= unused[going].num_bytes
        going += 1
    return unused[:going]
