"""Integers of 4 or 8 bits in words of 32, as the methods store them. Knows nothing about what they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

WORD = 32
"""Bits of a word."""


def num_words(count: int, bits: int) -> int:
    """How many words hold so many integers."""
    return -(-count * bits // WORD)


def unpacked(words: Tensor, bits: int) -> Tensor:
    """words: [rows, n] int32, whose lowest bits are the first integer -> [rows, n * 32 / bits] uint8."""
    columns = in_order(words).view(torch.uint8)  # little endian, as safetensors is
    return columns if bits == 8 else torch.stack((columns & 15, columns >> 4), -1).flatten(1)


def in_order(words: Tensor) -> Tensor:
    """A copy whose rows lie one after the other. `contiguous` leaves the strides of a single column as they are, and
    then its bytes cannot be viewed."""
    return words.clone(memory_format=torch.contiguous_format)
