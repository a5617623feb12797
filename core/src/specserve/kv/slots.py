"""The arithmetic of paged slots. Token i of a sequence lies in block `blocks[i // size]`, at offset `i % size`.

The slots of block b are [b * size, (b + 1) * size). Only this module computes slots and numbers of blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def num_blocks_for(num_tokens: int, block_size: int) -> int:
    """The number of blocks that `num_tokens` tokens fill; the last one may be partly filled."""
    return -(-num_tokens // block_size)


def slot_of(blocks: Sequence[int], position: int, block_size: int) -> int:
    """The slot of the token at `position`."""
    return blocks[position // block_size] * block_size + position % block_size


def slots_of(blocks: Sequence[int], positions: Iterable[int], block_size: int) -> list[int]:
    """The slots of the tokens at `positions`, in their order."""
    return [blocks[p // block_size] * block_size + p % block_size for p in positions]
