"""Weights that are scale * (integer - zero point), with a scale and a zero point for each output and group of inputs.

Owns how they become a `QuantisedWeight` without a loss, and what cannot be one. Knows nothing about files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.api.models import Factors, QuantisedWeight

if TYPE_CHECKING:
    from torch import Tensor

SCALES = ("F16", "BF16", "F32")
"""Types of scales."""


class Affine(NamedTuple):
    """The numbers of some rows of a linear map."""

    integers: Tensor
    """[rows, in] uint8, from 0 to 2 ** bits - 1."""
    zeros: Tensor | None
    """[rows, groups] uint8, in the same range; None where all are 2 ** (bits - 1)."""
    scales: Tensor
    """[rows, groups], of the type that the file has."""
    bits: int


def quantised(stored: Affine, group_size: int) -> QuantisedWeight:
    """What it stands for, exactly. Scales of 16 bits have at most 11 significant bits, so that their products with
    integers of 8 bits, and the sum of two of them, are float32 numbers."""
    middle = 1 << (stored.bits - 1)
    scales, zeros = stored.scales.float().contiguous(), stored.zeros
    levels = tuple(range(-middle, middle)) if stored.bits == 4 else None
    signed = (stored.integers ^ 128).view(torch.int8) if stored.bits == 8 else stored.integers.view(torch.int8) - middle
    weight = QuantisedWeight(signed, scales, group_size, torch.float32, levels=levels)
    if zeros is None or bool((zeros == middle).all()):
        return weight
    zeros = zeros.contiguous()
    if stored.scales.dtype == torch.float32:  # its products with zero points would be rounded
        assert stored.bits == 4, "`is_exact` is asked before"
        steps = weight.by_input(zeros.view(torch.int8) - middle)
        return weight._replace(integers=signed - steps, levels=tuple(range(-15, 16)))
    if stored.bits == 8:
        return weight._replace(offsets=Factors(-scales, (zeros ^ 128).view(torch.int8)))
    return weight._replace(
        integers=stored.integers.view(torch.int8), offsets=Factors(-scales, zeros), levels=tuple(range(16))
    )


def is_exact(bits: int, scales: str, has_zeros: bool) -> bool:
    """Whether `quantised` can say it without a loss. scales: their type, by safetensors' name."""
    return bits == 4 or scales != "F32" or not has_zeros


def in_full(stored: Affine, group_of: Tensor) -> Tensor:
    """group_of: [in] int64, the group of each input -> the weight, [rows, in] float32."""
    zeros = 1 << (stored.bits - 1) if stored.zeros is None else stored.zeros.short()[:, group_of]
    return stored.scales.float()[:, group_of] * (stored.integers.short() - zeros)
