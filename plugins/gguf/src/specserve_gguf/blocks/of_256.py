"""Blocks of 256 numbers in groups of 16 or 32, whose scales are small integers times one number of the block."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from specserve_gguf.blocks.form import Form, Parts, half, nibbles, slices

if TYPE_CHECKING:
    from specserve_gguf.blocks.form import Bytes, Small


def q2_k(raw: Bytes) -> Parts:
    """16 bytes with a scale and an offset of four bits; 64 with four numbers each; d, dmin."""
    steps = nibbles(raw[:, :16])
    return Parts(slices(rows_of_32(raw[:, 16:80]), 2), half(raw, 80), steps[:, 0], -half(raw, 82), steps[:, 1])


def q3_k(raw: Bytes) -> Parts:
    """32 bytes with the third bits, 64 with the other two; 12 bytes of scales; d."""
    integers, third = slices(rows_of_32(raw[:, 32:96]), 2), slices(raw[:, :32], 1)
    integers |= (third << 2).reshape(integers.shape)
    integers -= 4
    return Parts(integers, half(raw, 108), sixteen_steps(raw[:, 96:108]))


def q4_k(raw: Bytes) -> Parts:
    """d, dmin; 12 bytes of scales and offsets; 128 bytes: 32 have the numbers of two groups."""
    return with_offsets(raw, nibbles(rows_of_32(raw[:, 16:])))


def q5_k(raw: Bytes) -> Parts:
    """As q4_k, with 32 bytes of fifth bits before the numbers."""
    integers, fifth = nibbles(rows_of_32(raw[:, 48:])), slices(raw[:, 16:48], 1)
    integers |= (fifth << 4).reshape(integers.shape)
    return with_offsets(raw, integers)


def q6_k(raw: Bytes) -> Parts:
    """128 bytes with the lower four bits, 64 with the upper two; 16 scales; d."""
    integers, upper = nibbles(raw[:, :128].reshape(-1, 2, 64)), slices(rows_of_32(raw[:, 128:192]), 2)
    integers |= (upper << 4).reshape(integers.shape)
    integers -= 32
    return Parts(integers, half(raw, 208), raw[:, 192:208].view(np.int8))


def with_offsets(raw: Bytes, integers: Small) -> Parts:
    steps, offsets = eight_steps(raw[:, 4:16])
    return Parts(integers, half(raw, 0), steps, -half(raw, 2), offsets)


def rows_of_32(packed: Bytes) -> Bytes:
    """[n, m] -> [n, m / 32, 32]"""
    return packed.reshape(len(packed), -1, 32)


def eight_steps(packed: Bytes) -> tuple[Small, Small]:
    """packed: [n, 12] -> scales and offsets of six bits, [n, 8] each. Four of either have their six bits in one byte;
    the other four have their upper two bits where such a byte has room."""
    first, second, third = packed[:, :4], packed[:, 4:8], nibbles(packed[:, 8:])

    def all_eight(whole: Bytes, rest: Small) -> Small:
        return np.concatenate(((whole & 63).view(np.int8), rest | (whole >> 6 << 4).view(np.int8)), 1)

    return all_eight(first, third[:, 0]), all_eight(second, third[:, 1])


def sixteen_steps(packed: Bytes) -> Small:
    """packed: [n, 12] -> scales of six bits less 32: [n, 16]."""
    lower, upper = nibbles(packed[:, :8]).reshape(-1, 16), slices(packed[:, 8:], 2).reshape(-1, 16)
    steps: Small = (lower | upper << 4) - np.int8(32)
    return steps


FORMS = {
    "Q2_K": Form(q2_k, 16, tuple(range(4))),
    "Q3_K": Form(q3_k, 16, tuple(range(-4, 4))),
    "Q4_K": Form(q4_k, 32, tuple(range(16))),
    "Q5_K": Form(q5_k, 32, tuple(range(32))),
    "Q6_K": Form(q6_k, 16, tuple(range(-32, 32))),
}
