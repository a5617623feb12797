"""The activation of gpt-oss (OpenAI, 2025) in torch calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def clamped_swiglu(gate: Tensor, up: Tensor, gain: float, limit: float) -> Tensor:
    """As `specserve.models.config.SwigluClamp` says it. The gate's part is computed in float32 and rounded, the up's is
    rounded, and so is their product."""
    wide = gate.clamp(max=limit).float()
    opened = (wide / (-gain * wide).exp_().add_(1.0)).to(gate.dtype)
    return opened.mul_(up.clamp(-limit, limit).add_(1.0))
