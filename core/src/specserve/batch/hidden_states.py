"""The hidden states of a step: of the layers that are read, as columns of one tensor.

The rows of consecutive small steps lie one behind the other, so that who keeps those of several steps need not copy
them. No row is used twice. Letters: T rows of a step, W numbers of a hidden state over all layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

SHARED_BYTES = 2**22
"""The size of a tensor that several steps share."""
MIN_SHARED_ROWS = 64
"""The rows for which it has room at least."""


class HiddenStates(Mapping[int, "Tensor"]):
    """By layer [T, H]. `source`: [any, W], all layers in ascending order; the step's rows are [begin, end) of it. The
    columns of a layer are cut out when somebody reads them: most steps' hidden states are read together, or never."""

    __slots__ = ("begin", "columns", "end", "layers", "source")

    def __init__(self, layers: tuple[int, ...], source: Tensor, begin: int, end: int) -> None:
        self.layers, self.source, self.begin, self.end = layers, source, begin, end
        self.columns: dict[int, Tensor] | None = None

    @property
    def width(self) -> int:
        """Numbers of one layer."""
        return self.source.shape[1] // len(self.layers)

    @property
    def rows(self) -> Tensor:
        """[T, W]."""
        return self.source[self.begin : self.end]

    def __getitem__(self, layer: int) -> Tensor:
        if self.columns is None:
            columns = self.rows.split_with_sizes([self.width] * len(self.layers), 1)
            self.columns = dict(zip(self.layers, columns, strict=True))
        return self.columns[layer]

    def __contains__(self, layer: object) -> bool:
        return layer in self.layers

    def __iter__(self) -> Iterator[int]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)


def as_one(steps: Sequence[Mapping[int, Tensor]]) -> Sequence[Mapping[int, Tensor]]:
    """Several steps as one where their rows follow each other."""
    first = steps[0]
    if not isinstance(first, HiddenStates):
        return steps
    end = first.end
    for step in steps[1:]:
        if not (isinstance(step, HiddenStates) and step.source is first.source and step.begin == end):
            return steps
        end = step.end
    return [HiddenStates(first.layers, first.source, first.begin, end)]


class HiddenBuffers:
    """`layers`: the layers whose outputs are read, in ascending order; `hidden_size`: of each."""

    def __init__(self, layers: Sequence[int], hidden_size: int) -> None:
        self.layers, self.width = tuple(layers), hidden_size * len(layers)
        self.num_shared = 0
        """Rows of `shared`. Steps of more than a quarter of that have tensors of their own."""
        self.shared: Tensor | None = None
        self.begin = 0
        """The first row of `shared` that no step has."""

    def of_step(self, x: Tensor, num_rows: int) -> Mapping[int, Tensor]:
        """By layer a tensor [num_rows, H] of the dtype and device of `x`."""
        if not self.layers:
            return {}
        if not self.num_shared:
            self.num_shared = max(MIN_SHARED_ROWS, SHARED_BYTES // (self.width * x.element_size()))
        if num_rows > self.num_shared // 4:
            return HiddenStates(self.layers, x.new_empty((num_rows, self.width)), 0, num_rows)
        if self.shared is None or self.begin + num_rows > self.num_shared:
            self.shared, self.begin = x.new_empty((self.num_shared, self.width)), 0
        begin = self.begin
        self.begin += num_rows
        return HiddenStates(self.layers, self.shared, begin, self.begin)
