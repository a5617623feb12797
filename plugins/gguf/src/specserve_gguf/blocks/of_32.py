"""Blocks of 32 numbers with one scale of 16 bits, and some with an offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from specserve_gguf.blocks.form import Form, Parts, half, nibbles

if TYPE_CHECKING:
    from torch import Tensor

SIZE = 32


def q4_0(raw: Tensor) -> Parts:
    """d; 16 bytes with two numbers each."""
    return Parts(nibbles(raw[..., 2:]).sub_(8), half(raw, 0))


def q4_1(raw: Tensor) -> Parts:
    """d, m; 16 bytes with two numbers each."""
    return Parts(nibbles(raw[..., 4:]), half(raw, 0), half(raw, 2))


def q5_0(raw: Tensor) -> Parts:
    """d; 32 bits, the fifth of each number; 16 bytes with the other four."""
    return Parts(with_fifth(nibbles(raw[..., 6:]), raw[..., 2:6]).sub_(16), half(raw, 0))


def q5_1(raw: Tensor) -> Parts:
    """d, m; then as in q5_0."""
    return Parts(with_fifth(nibbles(raw[..., 8:]), raw[..., 4:8]), half(raw, 0), half(raw, 2))


def q8_0(raw: Tensor) -> Parts:
    """d; 32 integers."""
    return Parts(raw[..., 2:].view(torch.int8), half(raw, 0))


def with_fifth(lower: Tensor, bits: Tensor) -> Tensor:
    """lower: [..., 2, 16] int8; bits: [..., 4] uint8, the lowest of the first byte is that of the first number."""
    each = bits.unsqueeze(-1).bitwise_right_shift(torch.arange(8, dtype=torch.uint8)).bitwise_and_(1)
    fifth = each.bitwise_left_shift_(4).view(torch.int8).reshape(lower.shape)
    return lower.bitwise_or_(fifth)


FORMS = {
    "Q4_0": Form(q4_0, SIZE, tuple(range(-8, 8))),
    "Q4_1": Form(q4_1, SIZE, tuple(range(16))),
    "Q5_0": Form(q5_0, SIZE, tuple(range(-16, 16))),
    "Q5_1": Form(q5_1, SIZE, tuple(range(32))),
    "Q8_0": Form(q8_0, SIZE),
}
