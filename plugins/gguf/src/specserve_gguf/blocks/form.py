"""How a type of blocks is unpacked, and the bits that several types have alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.api.models import Factors

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


class Parts(NamedTuple):
    """The numbers of some rows."""

    integers: Tensor
    """[rows, blocks, ...] int8: what follows are the numbers of a block in their order."""
    scales: Tensor | Factors
    """[rows, groups]"""
    offsets: Tensor | Factors | None = None


class Form(NamedTuple):
    unpack: Callable[[Tensor], Parts]
    """From raw blocks."""
    group_size: int
    """Numbers that share a scale."""
    levels: tuple[int, ...] | None = None
    """What the integers may be, ascending; None: any of int8."""


def half(raw: Tensor, at: int) -> Tensor:
    """The number of 16 bits at that byte of each block: [rows, blocks] float32."""
    return raw[..., at : at + 2].contiguous().view(torch.float16)[..., 0].float()


def nibbles(packed: Tensor) -> Tensor:
    """[..., n] uint8 -> [..., 2, n] int8: all lower halves, then all upper ones."""
    out = torch.empty((*packed.shape[:-1], 2, packed.shape[-1]), dtype=torch.uint8)
    torch.bitwise_and(packed, 15, out=out[..., 0, :])
    torch.bitwise_right_shift(packed, 4, out=out[..., 1, :])
    return out.view(torch.int8)


def slices(packed: Tensor, width: int) -> Tensor:
    """[..., n] uint8 -> [..., 8 / width, n] int8: of all bytes the lowest `width` bits, then the next ones."""
    out = torch.empty((*packed.shape[:-1], 8 // width, packed.shape[-1]), dtype=torch.uint8)
    for index in range(8 // width):
        torch.bitwise_right_shift(packed, width * index, out=out[..., index, :])
    return out.bitwise_and_((1 << width) - 1).view(torch.int8)
