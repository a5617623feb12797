"""The additions of adapters to one projection of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.batch.lora_plan import LoraPlan
    from specserve.protocols import KernelSet


class LowRankDelta:
    """The delta of one projection: every segment gets the addition of its adapter. A kernel set that fuses layers may
    recognise this class and compute the additions itself."""

    def __init__(self, projection: str, kernels: KernelSet) -> None:
        self.projection, self.kernels = projection, kernels

    def __call__(self, x: Tensor, out: Tensor, rows: slice, plan: LoraPlan | None) -> None:
        """x: [T, in], out: [T, out]."""
        segments = plan.adapted(rows) if plan is not None else ()
        if segments:
            self.kernels.add_low_rank(self.projection, x, out, segments)
