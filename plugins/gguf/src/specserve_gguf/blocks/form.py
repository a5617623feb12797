"""How a type of blocks is unpacked, and the bits that several types have alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Small = NDArray[np.int8]
    Numbers = NDArray[np.float32]


class Parts(NamedTuple):
    """The numbers of n blocks. A scale is `units`, or where there are `steps`, units times steps; offsets likewise."""

    integers: Small
    """[n, ...]: what follows are the numbers of a block in their order."""
    units: Numbers
    """[n]"""
    steps: Small | None = None
    """[n, groups of a block]"""
    offset_units: Numbers | None = None
    offset_steps: Small | None = None


class Form(NamedTuple):
    unpack: Callable[[Bytes], Parts]
    """From raw blocks."""
    group_size: int
    """Numbers that share a scale."""
    levels: tuple[int, ...] | None = None
    """What the integers may be, ascending; None: any of int8."""


def half(raw: Bytes, at: int) -> Numbers:
    """The number of 16 bits at that byte of each block: [n]."""
    return np.ascontiguousarray(raw[:, at : at + 2]).view(np.float16)[:, 0].astype(np.float32)


def nibbles(packed: Bytes) -> Small:
    """[..., m] -> [..., 2, m]: all lower halves, then all upper ones."""
    return slices(packed, 4)


def slices(packed: Bytes, width: int) -> Small:
    """[..., m] -> [..., 8 / width, m]: of all bytes the lowest `width` bits, then the next ones."""
    count = 8 // width
    out = np.empty((*packed.shape[:-1], count, packed.shape[-1]), np.uint8)
    for index in range(count):
        np.right_shift(packed, width * index, out=out[..., index, :])
    out &= (1 << width) - 1
    return out.view(np.int8)
