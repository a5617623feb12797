"""A linear map whose weight is packed into the panels that the kernels read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from specserve.api.models import PackedRows, QuantisedWeight, numbers_of
from specserve_cpu.attention import native_module
from specserve_cpu.dlpack import dlpack
from specserve_cpu.options import AUTO

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.api.models import Activations
    from specserve_cpu import _native

MAX_SHARED = 1 << 17
"""Quantised inputs that can share a scale: the sums of their products fit into 32 bits."""


class PackedLinear:
    """`(x: [T, in]) -> [T, out]`, a fresh tensor."""

    def __init__(
        self,
        machine: _native.Machine,
        weight: Tensor | QuantisedWeight,
        bias: Tensor | None,
        activations: Activations = AUTO,
    ) -> None:
        self.out_features, self.in_features = weight.shape
        self.dtype = weight.dtype
        self.padding = padding_of(self.in_features, weight.dtype)
        self.form: tuple[int | str, str] | None = None
        """How weights are kept and multiplied: the size of groups that share a scale, and what inputs become. None: in
        the model's dtype."""
        native = native_module(weight.dtype)
        if isinstance(weight, QuantisedWeight):
            integers = pad_columns(weight.integers, self.padding).contiguous()
            size = weight.group_size if weight.num_groups > 1 else integers.shape[1]
            inputs = activations if has_quantisable_inputs(weight) else AUTO
            self.form = size, inputs
            self.native = native.PackedLinear(
                machine, integers, numbers_of(weight.scales).contiguous(), size, inputs, bias
            )
        else:
            self.native = native.PackedLinear(machine, pad_columns(weight, self.padding).contiguous(), bias)

    def __call__(self, x: Tensor) -> Tensor:
        out = torch.empty((x.shape[0], self.out_features), dtype=x.dtype)
        self.native.forward(dlpack(contiguous_rows(pad_columns(x, self.padding))), dlpack(out))
        return out


class ReadableLinear(PackedLinear, PackedRows):
    """Of integers, which can be read again."""

    def rows(self, outputs: Tensor) -> Tensor:
        out = torch.empty((len(outputs), self.in_features + self.padding), dtype=self.dtype)
        self.native.rows(dlpack(outputs), dlpack(out))
        return out[:, : self.in_features].contiguous()


def padding_of(in_features: int, dtype: torch.dtype) -> int:
    """The columns that are added to a weight in the model's dtype: bfloat16 dot products take inputs in pairs."""
    return in_features % 2 if dtype == torch.bfloat16 else 0


def has_quantisable_inputs(weight: QuantisedWeight) -> bool:
    """Can inputs be quantised in the groups of these weights? Dot products take four of them."""
    if weight.num_groups == 1:
        return weight.shape[1] <= MAX_SHARED
    return weight.group_size % 4 == 0 and weight.group_size <= MAX_SHARED


def quantise(machine: _native.Machine, weight: Tensor, group_size: int) -> QuantisedWeight:
    """weight: [out, in] -> 8 bits, symmetric, with a scale for each output and `group_size` inputs; ValueError where it
    is not finite."""
    outs, ins = weight.shape
    size = min(group_size, ins + ins % 2)
    integers = torch.empty((outs, ins), dtype=torch.int8)
    scales = torch.empty((outs, -(-ins // size)))
    native_module(weight.dtype).quantize(machine, weight.contiguous(), size, integers, scales)
    return QuantisedWeight(integers, scales, size, weight.dtype)


def pad_columns(x: Tensor, count: int) -> Tensor:
    """x with `count` more columns of zeros; x itself if there are none to add."""
    return F.pad(x, (0, count)) if count else x


def contiguous_rows(x: Tensor) -> Tensor:
    """x with stride 1 in its last dimension."""
    return x if x.stride(-1) == 1 else x.contiguous()
