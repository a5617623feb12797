"""Blocks whose numbers are indices of a table of sixteen integers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from specserve_gguf.blocks.form import Form, Parts, half, nibbles, slices

if TYPE_CHECKING:
    from specserve_gguf.blocks.form import Bytes, Small

NONLINEAR = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
FP4 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""Twice the numbers of four bits of the Open Compute Project's Microscaling Formats 1.0 (2023)."""
POWERS = np.exp2(np.arange(256) - 128.0).astype(np.float32)
"""Halves of the powers of two that a scale of 8 bits stands for."""


def iq4_nl(raw: Bytes) -> Parts:
    """d; 16 bytes with two indices each."""
    return Parts(looked_up(NONLINEAR, raw[:, 2:]), half(raw, 0))


def iq4_xs(raw: Bytes) -> Parts:
    """d; 2 bytes with the upper two bits of eight scales, 4 with the lower four; 128 bytes with two indices each, 16 of
    them for a group."""
    upper = slices(raw[:, 2:4], 2).transpose(0, 2, 1).reshape(-1, 8)
    lower = nibbles(raw[:, 4:8]).transpose(0, 2, 1).reshape(-1, 8)
    steps = (lower | upper << 4) - np.int8(32)
    return Parts(looked_up(NONLINEAR, raw[:, 8:].reshape(-1, 8, 16)), half(raw, 0), steps)


def mxfp4(raw: Bytes) -> Parts:
    """An exponent of 8 bits; 16 bytes with two indices each."""
    return Parts(looked_up(FP4, raw[:, 1:]), POWERS[raw[:, 0]])


def looked_up(table: tuple[int, ...], packed: Bytes) -> Small:
    """packed: [..., m] -> [..., 2, m]: by all lower halves, then by all upper ones."""
    return np.take(np.array(table, np.int8), nibbles(packed))


FORMS = {
    "IQ4_NL": Form(iq4_nl, 32, NONLINEAR),
    "IQ4_XS": Form(iq4_xs, 32, NONLINEAR),
    "MXFP4": Form(mxfp4, 32, tuple(sorted({*FP4}))),
}
