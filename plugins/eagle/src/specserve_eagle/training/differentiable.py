"""Torch's kernels without writes into what a gradient needs: a frozen model can then be learned through."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from specserve.api.models import TorchKernels

if TYPE_CHECKING:
    from torch import Tensor


class DifferentiableKernels(TorchKernels):
    """The same roundings."""

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        if not x.requires_grad:
            return super().rms_norm(x, weight, eps)
        x = x.clone()  # the caller may add to it later
        wide = x if weight.dtype == x.dtype else x.float()
        return (torch.rms_norm(wide, weight.shape, None, eps) * weight).to(x.dtype)

    def silu_and_multiply(self, gate_up: Tensor) -> Tensor:
        if not gate_up.requires_grad:
            return super().silu_and_multiply(gate_up)
        gate, up = gate_up.chunk(2, -1)
        return F.silu(gate) * up

    def gelu_and_multiply(self, gate_up: Tensor) -> Tensor:
        if not gate_up.requires_grad:
            return super().gelu_and_multiply(gate_up)
        gate, up = gate_up.chunk(2, -1)
        return F.gelu(gate, approximate="tanh") * up
