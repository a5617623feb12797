"""Blocks of 256 numbers in groups of 16 or 32, whose scales are small integers times one number of the block."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from specserve.api.models import Factors
from specserve_gguf.blocks.form import Form, Parts, half, nibbles, slices

if TYPE_CHECKING:
    from torch import Tensor


def q2_k(raw: Tensor) -> Parts:
    """16 bytes with a scale and an offset of four bits; 64 with four numbers each; d, dmin."""
    steps, offsets = nibbles(raw[..., :16]).unbind(-2)
    integers = slices(raw[..., 16:80].unflatten(-1, (2, 32)), 2)
    return Parts(integers, factors(half(raw, 80), steps), factors(-half(raw, 82), offsets))


def q3_k(raw: Tensor) -> Parts:
    """32 bytes with the third bits, 64 with the other two; 12 bytes of scales; d."""
    integers = slices(raw[..., 32:96].unflatten(-1, (2, 32)), 2)
    third = slices(raw[..., :32], 1).unflatten(-2, (2, 4))
    integers = integers.bitwise_or_(third.bitwise_left_shift_(2)).sub_(4)
    return Parts(integers, factors(half(raw, 108), sixteen_steps(raw[..., 96:108])))


def q4_k(raw: Tensor) -> Parts:
    """d, dmin; 12 bytes of scales and offsets; 128 bytes: 32 have the numbers of two groups."""
    return with_offsets(raw, nibbles(raw[..., 16:].unflatten(-1, (4, 32))))


def q5_k(raw: Tensor) -> Parts:
    """As q4_k, with 32 bytes of fifth bits before the numbers."""
    integers = nibbles(raw[..., 48:].unflatten(-1, (4, 32)))
    fifth = slices(raw[..., 16:48], 1).unflatten(-2, (4, 2))
    return with_offsets(raw, integers.bitwise_or_(fifth.bitwise_left_shift_(4)))


def q6_k(raw: Tensor) -> Parts:
    """128 bytes with the lower four bits, 64 with the upper two; 16 scales; d."""
    integers = nibbles(raw[..., :128].unflatten(-1, (2, 64))).view(*raw.shape[:-1], 2, 4, 32)
    upper = slices(raw[..., 128:192].unflatten(-1, (2, 32)), 2)
    integers = integers.bitwise_or_(upper.bitwise_left_shift_(4)).sub_(32)
    return Parts(integers, factors(half(raw, 208), raw[..., 192:208].view(torch.int8)))


def with_offsets(raw: Tensor, integers: Tensor) -> Parts:
    steps, offsets = eight_steps(raw[..., 4:16])
    return Parts(integers, factors(half(raw, 0), steps), factors(-half(raw, 2), offsets))


def factors(units: Tensor, steps: Tensor) -> Factors:
    """units: [rows, blocks]; steps: [rows, blocks, groups of a block] int8."""
    return Factors(units, steps.flatten(1))


def eight_steps(packed: Tensor) -> tuple[Tensor, Tensor]:
    """packed: [..., 12] uint8 -> scales and offsets of six bits, [..., 8] int8 each. Four of either have their six bits
    in one byte, the other four their upper two where a byte of the first ones has none."""
    first, second, third = packed.unflatten(-1, (3, 4)).unbind(-2)
    lower, upper = nibbles(third).unbind(-2)

    def all_eight(whole: Tensor, rest: Tensor) -> Tensor:
        beyond = (whole >> 6 << 4).view(torch.int8)
        return torch.cat(((whole & 63).view(torch.int8), rest | beyond), -1)

    return all_eight(first, lower), all_eight(second, upper)


def sixteen_steps(packed: Tensor) -> Tensor:
    """packed: [..., 12] uint8 -> scales of six bits less 32: [..., 16] int8."""
    lower = nibbles(packed[..., :8]).flatten(-2)
    upper = slices(packed[..., 8:], 2).flatten(-2)
    return (lower | upper << 4) - 32


FORMS = {
    "Q2_K": Form(q2_k, 16, tuple(range(4))),
    "Q3_K": Form(q3_k, 16, tuple(range(-4, 4))),
    "Q4_K": Form(q4_k, 32, tuple(range(16))),
    "Q5_K": Form(q5_k, 32, tuple(range(32))),
    "Q6_K": Form(q6_k, 16, tuple(range(-32, 32))),
}
