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
        if x.requires_grad:
            x = x.clone()  # the caller may add to it later
        wide = x if weight.dtype == x.dtype else x.float()
        return (torch.rms_norm(wide, weight.shape, None, eps) * weight).to(x.dtype)

    def silu_and_multiply(self, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, -1)
        return F.silu(gate) * up

    def gelu_and_multiply(self, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, -1)
        return F.gelu(gate, approximate="tanh") * up
