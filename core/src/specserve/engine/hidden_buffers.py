"""Where a forward pass puts the hidden states that are read: one tensor with a column for each layer.

The rows of consecutive small steps lie one behind the other, so that who keeps those of several steps need not copy
them. No row is used twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from torch import Tensor

SHARED_ROWS = 512
"""Rows of a tensor that several steps share."""
LARGEST_PART = SHARED_ROWS // 4
"""Steps of more rows have tensors of their own."""


class HiddenBuffers:
    """`layers`: the layers whose outputs are read, in ascending order; `hidden_size`: of each."""

    def __init__(self, layers: Collection[int], hidden_size: int) -> None:
        self.layers, self.sizes = layers, [hidden_size] * len(layers)
        self.shared: Tensor | None = None
        self.used = 0
        """Rows of `shared` that steps have."""

    def of_step(self, x: Tensor, num_rows: int) -> dict[int, Tensor]:
        """By layer a tensor [num_rows, H] of the dtype and device of `x`."""
        if not self.layers:
            return {}
        columns = self.rows(x, num_rows).split_with_sizes(self.sizes, 1)
        return dict(zip(self.layers, columns, strict=True))

    def rows(self, x: Tensor, count: int) -> Tensor:
        width = sum(self.sizes)
        if count > LARGEST_PART:
            return x.new_empty((count, width))
        if self.shared is None or self.used + count > len(self.shared):
            self.shared, self.used = x.new_empty((SHARED_ROWS, width)), 0
        begin, self.used = self.used, self.used + count
        return self.shared[begin : self.used]
