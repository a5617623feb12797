"""A linear map whose weight is packed into the panels that the kernels read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from specserve_cpu.attention import native_module
from specserve_cpu.dlpack import dlpack

if TYPE_CHECKING:
    from torch import Tensor

    from specserve_cpu import _native


class PackedLinear:
    """`(x: [T, in]) -> [T, out]`, a fresh tensor."""

    def __init__(
        self, machine: _native.Machine, weight: Tensor, bias: Tensor | None, group_size: int | None = None
    ) -> None:
        """weight: [out, in]. With a group size it is quantised to 8 bits, with a scale for each output and so many
        inputs; ValueError where it is not finite."""
        self.out_features, self.in_features = weight.shape
        # bfloat16 dot products take inputs in pairs
        self.padding = self.in_features % 2 if weight.dtype == torch.bfloat16 else 0
        native, padded = native_module(weight.dtype), pad_columns(weight, self.padding).contiguous()
        if group_size is None:
            self.native = native.PackedLinear(machine, padded, bias)
            return
        group_size = min(group_size, padded.shape[1])
        integers = torch.empty(padded.shape, dtype=torch.int8)
        scales = torch.empty((self.out_features, -(-padded.shape[1] // group_size)))
        native.quantize(machine, padded, group_size, integers, scales)
        self.native = native.PackedLinear(machine, integers, scales, group_size, bias)

    def __call__(self, x: Tensor) -> Tensor:
        out = torch.empty((x.shape[0], self.out_features), dtype=x.dtype)
        self.native.forward(dlpack(contiguous_rows(pad_columns(x, self.padding))), dlpack(out))
        return out


def pad_columns(x: Tensor, count: int) -> Tensor:
    """x with `count` more columns of zeros; x itself if there are none to add."""
    return F.pad(x, (0, count)) if count else x


def contiguous_rows(x: Tensor) -> Tensor:
    """x with stride 1 in its last dimension."""
    return x if x.stride(-1) == 1 else x.contiguous()
