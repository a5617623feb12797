"""Blocks whose numbers are indices of a table of sixteen integers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from specserve_gguf.blocks.form import Form, Parts, half, nibbles
from specserve_gguf.blocks.of_256 import factors

if TYPE_CHECKING:
    from torch import Tensor

NONLINEAR = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
FP4 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""Twice the numbers of four bits of the Open Compute Project's Microscaling Formats 1.0 (2023)."""
POWERS = torch.from_numpy(np.exp2(np.arange(256) - 128.0).astype(np.float32))
"""Halves of the powers of two that a scale of 8 bits stands for."""


def iq4_nl(raw: Tensor) -> Parts:
    """d; 16 bytes with two indices each."""
    return Parts(looked_up(NONLINEAR, raw[..., 2:]), half(raw, 0))


def iq4_xs(raw: Tensor) -> Parts:
    """d; 2 bytes with the upper two bits of eight scales, 4 with the lower four; 128 bytes with two indices each, 16 of
    them for a group."""
    upper = raw[..., 2:4].unsqueeze(-1) >> torch.arange(0, 8, 2, dtype=torch.uint8) & 3
    lower = nibbles(raw[..., 4:8]).transpose(-1, -2).flatten(-2)
    steps = (lower | (upper.flatten(-2) << 4).view(torch.int8)) - 32
    return Parts(looked_up(NONLINEAR, raw[..., 8:].unflatten(-1, (8, 16))), factors(half(raw, 0), steps))


def mxfp4(raw: Tensor) -> Parts:
    """An exponent of 8 bits; 16 bytes with two indices each."""
    return Parts(looked_up(FP4, raw[..., 1:]), POWERS[raw[..., 0].int()])


def looked_up(table: tuple[int, ...], packed: Tensor) -> Tensor:
    """packed: [..., n] uint8 -> [..., 2, n] int8: by all lower halves, then by all upper ones."""
    by_byte = np.array(table, np.int8)[[[byte & 15 for byte in range(256)], [byte >> 4 for byte in range(256)]]]
    found = [torch.from_numpy(each[packed.numpy()]) for each in by_byte]
    return torch.stack(found, -2)


FORMS = {
    "IQ4_NL": Form(iq4_nl, 32, NONLINEAR),
    "IQ4_XS": Form(iq4_xs, 32, NONLINEAR),
    "MXFP4": Form(mxfp4, 32, tuple(sorted({*FP4}))),
}
