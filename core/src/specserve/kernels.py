"""The torch kernel set: the row-wise arithmetic of a decoder in plain torch calls.

Owns the rounding rules (norms and rotation in float32, everything else in the model's dtype) and the tile height;
knows nothing about models, weights or batches. Rows must come padded to `row_tile`: torch picks another matrix
algorithm for another row count, and with it other last bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

if TYPE_CHECKING:
    from torch import Tensor


class TorchKernels:
    """`specserve.protocols.KernelSet` for every device and dtype that torch serves."""

    name = "torch"
    row_tile: int | None = 32

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(x, weight, bias)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        # torch's own weight argument multiplies before the rounding to x's dtype; checkpoints were trained with the
        # rounding first. Same bits as float, square, mean, rsqrt, multiply written out, in two calls.
        return F.rms_norm(x, weight.shape, None, eps).mul_(weight)

    def rotary(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        # x * cos is float32 by promotion; the rolled operand stays in x's dtype, so it costs no conversion.
        size = cos.shape[-1]
        if size == x.shape[-1]:
            return (x * cos).addcmul_(x.roll(size // 2, -1), sin).to(x.dtype)
        turned = x[..., :size]
        turned = (turned * cos).addcmul_(turned.roll(size // 2, -1), sin).to(x.dtype)
        return torch.cat((turned, x[..., size:]), -1)

    def silu_and_multiply(self, gate_up: Tensor) -> Tensor:
        size = gate_up.shape[-1] // 2
        return F.silu(gate_up[..., :size]).mul_(gate_up[..., size:])
