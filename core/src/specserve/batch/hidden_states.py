"""The hidden states of a step: of the layers that are read, as columns of one tensor.

The rows of consecutive small steps lie one behind the other, so that who keeps those of several steps need not copy
them. No row is used twice. Letters: T rows of a step, W numbers of a hidden state over all layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

SHARED_ROWS = 512
"""Rows of a tensor that several steps share."""
LARGEST_PART = SHARED_ROWS // 4
"""Steps of more rows have tensors of their own."""
PARTS_AHEAD = 16
"""Parts for so many steps are cut at once: one by one, between passes over a model, each takes three times as long."""


class HiddenStates(dict[int, "Tensor"]):
    """By layer [T, H]. `source`: [any, W], all layers in ascending order; the step's rows are those from `begin` on."""

    def __init__(self, layers: Sequence[int], source: Tensor, begin: int, rows: Tensor) -> None:
        columns = rows.split_with_sizes([rows.shape[1] // len(layers)] * len(layers), 1)
        super().__init__(zip(layers, columns, strict=True))
        self.layers, self.source, self.begin, self.end = layers, source, begin, begin + len(rows)


class HiddenBuffers:
    """`layers`: the layers whose outputs are read, in ascending order; `hidden_size`: of each."""

    def __init__(self, layers: Sequence[int], hidden_size: int) -> None:
        self.layers, self.width = tuple(layers), hidden_size * len(layers)
        self.shared: Tensor | None = None
        self.begin = 0
        """The first row of `shared` that no step has."""
        self.parts: list[HiddenStates] = []
        """Parts of `count` rows each from there on, the first one last."""
        self.count = 0

    def of_step(self, x: Tensor, num_rows: int) -> Mapping[int, Tensor]:
        """By layer a tensor [num_rows, H] of the dtype and device of `x`."""
        if not self.layers:
            return {}
        if num_rows > LARGEST_PART:
            rows = x.new_empty((num_rows, self.width))
            return HiddenStates(self.layers, rows, 0, rows)
        if num_rows != self.count or not self.parts:
            self.cut(x, num_rows)
        self.begin += num_rows
        return self.parts.pop()

    def cut(self, x: Tensor, count: int) -> None:
        """Make parts of so many rows."""
        if self.shared is None or self.begin + count > SHARED_ROWS:
            self.shared, self.begin = x.new_empty((SHARED_ROWS, self.width)), 0
        num_parts = min(PARTS_AHEAD, (SHARED_ROWS - self.begin) // count)
        end = self.begin + num_parts * count
        parts = self.shared[self.begin : end].view(num_parts, count, self.width).unbind()
        begins = range(self.begin, end, count)
        made = [HiddenStates(self.layers, self.shared, *each) for each in zip(begins, parts, strict=True)]
        self.parts, self.count = made[::-1], count
