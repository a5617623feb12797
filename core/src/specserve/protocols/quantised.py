"""A weight that is stored as integers of 8 bits and scales."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import torch
    from torch import Tensor


Activations: TypeAlias = Literal["auto", "int8"]
"""What a weight of 8 bits is multiplied by. auto: inputs in the model's dtype. int8: inputs rounded to the nearest of
255 multiples of a scale, which is the largest input of a row and group / 127."""


class QuantisedWeight(NamedTuple):
    """weight[o, i] = integers[o, i] * scales[o, i // group_size]."""

    integers: Tensor
    """[out, in] int8."""
    scales: Tensor
    """[out, groups] float32."""
    group_size: int
    dtype: torch.dtype
    """The dtype of the model, and of what `dense` gives."""
    activations: Activations = "auto"
    """What the checkpoint is made for; kernels that cannot round inputs multiply them in the model's dtype."""

    @property
    def shape(self) -> torch.Size:
        return self.integers.shape

    def dense(self) -> Tensor:
        """The weight itself, rounded to the model's dtype: [out, in]."""
        scales = self.scales.repeat_interleave(self.group_size, 1)[:, : self.integers.shape[1]]
        return (self.integers.float() * scales).to(self.dtype)

    def on(self, device: torch.device) -> QuantisedWeight:
        return self._replace(integers=self.integers.to(device), scales=self.scales.to(device))
