"""Ownership of the slots in which recurrent layers keep their states, and of the states that are saved for the prefix
cache. Knows no tensors and no requests.

A state stands for all tokens up to a position. Slot 0 is that of no tokens and is never written. A running request owns
two slots in turns: a step reads the one and writes the other, so that it can be computed again. A saved slot holds the
state at the end of a known block, by the block's hash; it may be evicted, least recently used first, unless a request
still starts from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

EMPTY = 0
"""The slot of no tokens."""
FIRST_OWN = 1
"""The first slot that a request may own; it is written before it is read."""


class OwnSlots(NamedTuple):
    first: int
    second: int

    def other_than(self, slot: int) -> int:
        return self.second if slot == self.first else self.first


class StatePool:
    """Slots for `num_running` requests, and `num_saved` more."""

    def __init__(self, num_running: int, num_saved: int) -> None:
        self.first_saved = 1 + 2 * num_running
        """The first slot for saved states."""
        self.num_slots = self.first_saved + num_saved
        self.pairs = [OwnSlots(2 * i + 1, 2 * i + 2) for i in reversed(range(num_running))]
        self.free = list(range(self.num_slots - 1, self.first_saved - 1, -1))
        self.by_hash: dict[bytes, int] = {}
        """Insertion order is order of use: the first is evicted first."""
        self.pins: dict[int, int] = {}
        """How many requests start from a saved slot."""

    @property
    def num_held(self) -> int:
        """Pairs that requests own."""
        return (self.first_saved - 1) // 2 - len(self.pairs)

    def take_pair(self) -> OwnSlots:
        return self.pairs.pop()

    def release_pair(self, pair: OwnSlots) -> None:
        self.pairs.append(pair)

    def find(self, block_hash: bytes) -> int | None:
        """The state behind the block, which counts as used."""
        slot = self.by_hash.pop(block_hash, None)
        if slot is not None:
            self.by_hash[block_hash] = slot
        return slot

    def pin(self, slot: int) -> None:
        self.pins[slot] = self.pins.get(slot, 0) + 1

    def unpin(self, slot: int) -> None:
        self.pins[slot] -= 1
        if not self.pins[slot]:
            del self.pins[slot]
            if slot not in self.by_hash.values():  # its block was forgotten meanwhile
                self.free.append(slot)

    def take_saved(self) -> int | None:
        """A slot to save a state in; None where a request starts from every one."""
        if self.free:
            return self.free.pop()
        evicted = next((h for h, slot in self.by_hash.items() if slot not in self.pins), None)
        return None if evicted is None else self.by_hash.pop(evicted)

    def save(self, block_hash: bytes, slot: int) -> bool:
        """The slot holds the state behind this block. Where that is saved already, the slot is free again. Whether it
        was new."""
        if self.find(block_hash) is not None:
            self.free.append(slot)
            return False
        self.by_hash[block_hash] = slot
        return True

    def forget(self, block_hash: bytes) -> None:
        """The block is not known any more."""
        slot = self.by_hash.pop(block_hash, None)
        if slot is not None and slot not in self.pins:
            self.free.append(slot)

    def check_integrity(self, held: int, saving: Sequence[int]) -> None:
        """held: how many requests own a pair; saving: slots that were taken to save in. Every slot is in one place."""
        assert held == self.num_held, "other requests have states than those that run"
        saved = [*self.free, *self.by_hash.values(), *saving]
        orphans = [slot for slot in self.pins if slot not in self.by_hash.values()]
        own = [slot for pair in self.pairs for slot in pair]
        assert len({*saved, *orphans, *own}) == len(saved) + len(orphans) + len(own), "a slot is in two places"
        assert 1 + len(own) + 2 * held + len(saved) + len(orphans) == self.num_slots, "slots were lost"
