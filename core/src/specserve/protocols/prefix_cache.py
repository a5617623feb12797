"""What the prefix cache tells of itself: which blocks it knows, as changes in the order in which they happened."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence


class BlocksStored(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive blocks of one request are known from now on; a request that begins with their tokens may use them."""

    hashes: tuple[bytes, ...]
    """16 bytes each: of all tokens up to the block's end, the adapter, the cache salt and the arithmetic. The same in
    every process with the same configuration."""
    parent: bytes | None
    """The hash of the block before the first; None where these begin the text. That block may be unknown by now."""
    token_ids: tuple[int, ...]
    """[len(hashes) * block_size], without those of the parent."""
    adapter: str
    """As `Request.adapter`: empty for the base model."""
    cache_salt: str | None


class BlocksRemoved(msgspec.Struct, frozen=True, kw_only=True):
    """These blocks are not known any more."""

    hashes: tuple[bytes, ...]


class CacheCleared(msgspec.Struct, frozen=True):
    """No block is known any more."""


CacheChange: TypeAlias = BlocksStored | BlocksRemoved | CacheCleared


class CacheObserver(ABC):
    """Is told which blocks the prefix cache knows. Whoever applies all changes in their order knows the same blocks."""

    @abstractmethod
    def changed(self, changes: Sequence[CacheChange]) -> None:
        """Called after each step that changed anything, and after `reset_prefix_cache`, in the step's thread: hand the
        changes on, and do nothing that may block."""

    def stop(self) -> None:  # noqa: B027 (a default)
        """The engine has ended; nothing is called any more. Called in another thread than the step's."""
