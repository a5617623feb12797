"""Collects what changes in the prefix cache during a step, and tells the observers of it afterwards.

Without an observer nothing is collected: `NoJournal`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from specserve.namespaces import salt_of
from specserve.protocols import BlocksRemoved, BlocksStored, CacheCleared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.batch.request import Request
    from specserve.guards.cache_observer import GuardedCacheObserver
    from specserve.protocols import CacheChange


class NoJournal:
    """Nobody observes."""

    def stored(self, request: Request, index: int) -> None:
        """The request's block of this index is known from now on."""

    def removed(self, block_hash: bytes) -> None:
        """The block is not known any more."""

    def cleared(self) -> None:
        """No block is known any more."""

    def deliver(self) -> None:
        """Tell what changed since the last call."""

    def stop(self) -> None:
        """Nothing will change any more."""


NO_JOURNAL = NoJournal()


@dataclass(slots=True)
class Run:
    """Blocks [first, end) of a request. Their tokens are committed, so they stay as they are until they are told."""

    request: Request
    first: int
    end: int

    def change(self, block_size: int) -> BlocksStored:
        request, first, end = self.request, self.first, self.end
        return BlocksStored(
            hashes=tuple(request.hashes[first:end]),
            parent=request.hashes[first - 1] if first else None,
            token_ids=tuple(request.tokens[first * block_size : end * block_size]),
            adapter=request.adapter,
            cache_salt=salt_of(request.namespace),
        )


@dataclass(slots=True)
class Removal:
    hashes: list[bytes]

    def change(self, block_size: int) -> BlocksRemoved:
        return BlocksRemoved(hashes=tuple(self.hashes))


@dataclass(slots=True)
class Clearing:
    def change(self, block_size: int) -> CacheCleared:
        return CacheCleared()


@dataclass(slots=True)
class CacheJournal(NoJournal):
    block_size: int
    observers: Sequence[GuardedCacheObserver]
    entries: list[Run | Removal | Clearing] = field(default_factory=list)

    def stored(self, request: Request, index: int) -> None:
        last = self.entries[-1] if self.entries else None
        if isinstance(last, Run) and last.request is request and last.end == index:
            last.end += 1
        else:
            self.entries.append(Run(request, index, index + 1))

    def removed(self, block_hash: bytes) -> None:
        last = self.entries[-1] if self.entries else None
        if isinstance(last, Removal):
            last.hashes.append(block_hash)
        else:
            self.entries.append(Removal([block_hash]))

    def cleared(self) -> None:
        """What happened before makes no difference any more."""
        self.entries = [Clearing()]

    def deliver(self) -> None:
        if not self.entries:
            return
        entries, self.entries = self.entries, []
        changes: list[CacheChange] = [entry.change(self.block_size) for entry in entries]
        for observer in self.observers:
            observer.changed(changes)

    def stop(self) -> None:
        for observer in self.observers:
            observer.stop()


def make_journal(block_size: int, observers: Sequence[GuardedCacheObserver]) -> NoJournal:
    return CacheJournal(block_size, observers) if observers else NO_JOURNAL
