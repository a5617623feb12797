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
PARTS_AHEAD = 16
"""Parts for so many steps are cut at once: one by one, between passes over a model, each takes three times as long."""


class HiddenBuffers:
    """`layers`: the layers whose outputs are read, in ascending order; `hidden_size`: of each."""

    def __init__(self, layers: Collection[int], hidden_size: int) -> None:
        self.layers, self.sizes = layers, [hidden_size] * len(layers)
        self.shared: Tensor | None = None
        self.begin = 0
        """The first row of `shared` that no step has."""
        self.parts: list[dict[int, Tensor]] = []
        """Parts of `count` rows each from there on, the first one last."""
        self.count = 0

    def of_step(self, x: Tensor, num_rows: int) -> dict[int, Tensor]:
        """By layer a tensor [num_rows, H] of the dtype and device of `x`."""
        if not self.layers:
            return {}
        if num_rows > LARGEST_PART:
            return self.columns(x.new_empty((num_rows, sum(self.sizes))))
        if num_rows != self.count or not self.parts:
            self.cut(x, num_rows)
        self.begin += num_rows
        return self.parts.pop()

    def cut(self, x: Tensor, count: int) -> None:
        """Make parts of so many rows."""
        if self.shared is None or self.begin + count > SHARED_ROWS:
            self.shared, self.begin = x.new_empty((SHARED_ROWS, sum(self.sizes))), 0
        num_parts = min(PARTS_AHEAD, (SHARED_ROWS - self.begin) // count)
        rows = self.shared[self.begin : self.begin + num_parts * count].view(num_parts, count, -1)
        self.parts, self.count = [self.columns(part) for part in reversed(rows.unbind())], count

    def columns(self, rows: Tensor) -> dict[int, Tensor]:
        return dict(zip(self.layers, rows.split_with_sizes(self.sizes, 1), strict=True))
