"""Blocks of 32 numbers with one scale of 16 bits, and some with an offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from specserve_gguf.blocks.form import Form, Parts, half, nibbles

if TYPE_CHECKING:
    from specserve_gguf.blocks.form import Bytes, Small

SIZE = 32
EIGHT, SIXTEEN = np.int8(8), np.int8(16)


def q4_0(raw: Bytes) -> Parts:
    """d; 16 bytes with two numbers each."""
    return Parts(nibbles(raw[:, 2:]) - EIGHT, half(raw, 0))


def q4_1(raw: Bytes) -> Parts:
    """d, m; 16 bytes with two numbers each."""
    return Parts(nibbles(raw[:, 4:]), half(raw, 0), offset_units=half(raw, 2))


def q5_0(raw: Bytes) -> Parts:
    """d; 32 bits, the fifth of each number; 16 bytes with the other four."""
    return Parts(with_fifth(nibbles(raw[:, 6:]), raw[:, 2:6]) - SIXTEEN, half(raw, 0))


def q5_1(raw: Bytes) -> Parts:
    """d, m; then as in q5_0."""
    return Parts(with_fifth(nibbles(raw[:, 8:]), raw[:, 4:8]), half(raw, 0), offset_units=half(raw, 2))


def q8_0(raw: Bytes) -> Parts:
    """d; 32 integers."""
    return Parts(raw[:, 2:].view(np.int8), half(raw, 0))


def with_fifth(lower: Small, bits: Bytes) -> Small:
    """lower: [n, 2, 16]; bits: [n, 4], the lowest of the first byte is that of the first number."""
    fifth = np.unpackbits(np.ascontiguousarray(bits), axis=1, bitorder="little").view(np.int8)
    fifth <<= 4
    lower |= fifth.reshape(lower.shape)
    return lower


FORMS = {
    "Q4_0": Form(q4_0, SIZE, tuple(range(-8, 8))),
    "Q4_1": Form(q4_1, SIZE, tuple(range(16))),
    "Q5_0": Form(q5_0, SIZE, tuple(range(-16, 16))),
    "Q5_1": Form(q5_1, SIZE, tuple(range(32))),
    "Q8_0": Form(q8_0, SIZE),
}
