"""The vectors of each token that layers are given beside the hidden state: see `TokenInputs`. Letters: T rows, H hidden
size, L layers, d numbers of a vector."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve.models.projection import vectors_of

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.models.projection import BatchRows, Projection
    from specserve.protocols import KernelSet

HALF = 2.0**-0.5
"""Of the sum of two vectors, so that it is as long as each."""


class InputsOfTokens(NamedTuple):
    """Makes them of a token's id and of its embedding."""

    table: Tensor | Projection
    """[V, L d]."""
    projection: Projection
    """[L d, H]."""
    norm: Tensor
    """[d]."""
    norm_eps: float
    table_scale: Tensor
    """The square root of d, in the model's dtype."""

    def __call__(self, kernels: KernelSet, x: Tensor, ids: Tensor, at: BatchRows) -> Tensor:
        """x: [T, H], the embeddings as the first layer gets them; ids: [T] int64 -> [L, T, d]. Every product and sum is
        rounded."""
        d = len(self.norm)
        shape = len(x), -1, d
        of_context = (self.projection(x, at) * x.shape[1] ** -0.5).view(shape)
        of_context = kernels.rms_norm(of_context, self.norm, self.norm_eps)
        of_id = (vectors_of(self.table, ids) * self.table_scale).view(shape)
        return ((of_context + of_id) * HALF).transpose(0, 1).contiguous()


class GivenInput(NamedTuple):
    """What a layer does with its vector: its gates, of the hidden state, are multiplied by it."""

    gate: Projection
    """[d, H]."""
    output: Projection
    """[H, d]."""
    norm: Tensor
    """[H]."""
