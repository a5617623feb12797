"""A weight that is stored as integers of 8 bits and scales."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class QuantisedWeight(NamedTuple):
    """weight[o, i] = integers[o, i] * scales[o, i // group_size]."""

    integers: Tensor
    """[out, in] int8."""
    scales: Tensor
    """[out, groups] float32."""
    group_size: int
    dtype: torch.dtype
    """Of the model, and of what `dense` gives."""

    @property
    def shape(self) -> torch.Size:
        return self.integers.shape

    def dense(self) -> Tensor:
        """The weight itself, rounded to the model's dtype: [out, in]."""
        scales = self.scales.repeat_interleave(self.group_size, 1)[:, : self.integers.shape[1]]
        return (self.integers.float() * scales).to(self.dtype)

    def on(self, device: torch.device) -> QuantisedWeight:
        return self._replace(integers=self.integers.to(device), scales=self.scales.to(device))
