"""A linear map whose weight was packed into the panels that the kernels read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from specserve_cpu.attention import native_kind
from specserve_cpu.lending import lent

if TYPE_CHECKING:
    from torch import Tensor

    from specserve_cpu import _native


class PackedLinear:
    """`(x: [T, in]) -> [T, out]`, a fresh tensor."""

    def __init__(self, machine: _native.Machine, weight: Tensor, bias: Tensor | None) -> None:
        self.outs, self.ins = weight.shape
        # bf16 inputs are taken in pairs
        self.missing = self.ins % 2 if weight.dtype == torch.bfloat16 else 0
        even = filled_up(weight, self.missing).contiguous()
        self.native = native_kind(weight.dtype).PackedLinear(machine, even, bias)

    def __call__(self, x: Tensor) -> Tensor:
        out = torch.empty((x.shape[0], self.outs), dtype=x.dtype)
        self.native.run(lent(dense(filled_up(x, self.missing))), lent(out))
        return out


def filled_up(rows: Tensor, missing: int) -> Tensor:
    """With so many columns of zeros more; without a copy where none is missing."""
    return F.pad(rows, (0, missing)) if missing else rows


def dense(x: Tensor) -> Tensor:
    """x with neighbouring numbers in its last dimension."""
    return x if x.stride(-1) == 1 else x.contiguous()
