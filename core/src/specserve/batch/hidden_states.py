"""The hidden states of a step: of the layers that are read, as columns of one tensor.

The rows of consecutive small steps lie one behind the other, so that who keeps those of several steps need not copy
them. No row is used twice. Letters: T rows of a step, W numbers of a hidden state over all layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

SHARED_BYTES = 2**22
"""Of a tensor that several steps share."""
MIN_SHARED_ROWS = 64
"""It has room for at least so many rows."""
PARTS_AHEAD = 16
"""Parts for so many steps are cut at once: one by one, between passes over a model, each takes three times as long."""


class HiddenStates(dict[int, "Tensor"]):
    """By layer [T, H]. `source`: [any, W], all layers in ascending order; the step's rows are those from `begin` on."""

    def __init__(self, layers: Sequence[int], source: Tensor, begin: int, rows: Tensor) -> None:
        columns = rows.split_with_sizes([rows.shape[1] // len(layers)] * len(layers), 1)
        super().__init__(zip(layers, columns, strict=True))
        self.layers, self.source, self.begin, self.end = layers, source, begin, begin + len(rows)


def as_one(steps: Sequence[Mapping[int, Tensor]]) -> Sequence[Mapping[int, Tensor]]:
    """Steps of equally many rows, without others in between, as one step where their rows follow each other."""
    first, last = steps[0], steps[-1]
    if not (isinstance(first, HiddenStates) and isinstance(last, HiddenStates) and first.source is last.source):
        return steps
    if last.end - first.begin != len(steps) * (first.end - first.begin):
        return steps
    return [HiddenStates(first.layers, first.source, first.begin, first.source[first.begin : last.end])]


class HiddenBuffers:
    """`layers`: the layers whose outputs are read, in ascending order; `hidden_size`: of each."""

    def __init__(self, layers: Sequence[int], hidden_size: int) -> None:
        self.layers, self.width = tuple(layers), hidden_size * len(layers)
        self.num_shared = 0
        """Rows of `shared`. Steps of more than a quarter of that have tensors of their own."""
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
        if not self.num_shared:
            self.num_shared = max(MIN_SHARED_ROWS, SHARED_BYTES // (self.width * x.element_size()))
        if num_rows > self.num_shared // 4:
            rows = x.new_empty((num_rows, self.width))
            return HiddenStates(self.layers, rows, 0, rows)
        if num_rows != self.count or not self.parts:
            self.cut(x, num_rows)
        self.begin += num_rows
        return self.parts.pop()

    def cut(self, x: Tensor, count: int) -> None:
        """Make parts of so many rows."""
        if self.shared is None or self.begin + count > self.num_shared:
            self.shared, self.begin = x.new_empty((self.num_shared, self.width)), 0
        num_parts = min(PARTS_AHEAD, (self.num_shared - self.begin) // count)
        end = self.begin + num_parts * count
        parts = self.shared[self.begin : end].view(num_parts, count, self.width).unbind()
        begins = range(self.begin, end, count)
        made = [HiddenStates(self.layers, self.shared, *each) for each in zip(begins, parts, strict=True)]
        self.parts, self.count = made[::-1], count
