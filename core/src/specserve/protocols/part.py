"""Where a checkpoint has a linear map, and what of its tensors one process has, where several compute one model."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

Combine: TypeAlias = "Callable[[Tensor], Tensor]"
"""From what a projection, or a layer's experts, give in this process, [T, out], to that of all parts together."""

LinearMaps: TypeAlias = dict[str, tuple[int, int, bool]]
"""Of a checkpoint, by path within a layer: outputs, inputs, and whether there is a bias."""


class TensorPart(NamedTuple):
    """The rows and columns of a checkpoint's tensor that a part of the model has."""

    rows: slice = slice(None)
    columns: slice = slice(None)
    """Of a matrix."""

    def shape_of(self, whole: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of this part of a tensor with the shape `whole`."""
        cuts = zip(whole, self, strict=False)
        return tuple(len(range(*cut.indices(size))) for size, cut in cuts) + whole[2:]


class StoredAs(NamedTuple):
    """Where the checkpoint has a linear map or a norm."""

    name: str
    """The name of its tensors there, without `.weight`; the whole name, where it is said of one tensor."""
    first_row: int = 0
    num_rows: int | None = None
    """None: all from there on."""
    of_stack: int | None = None
    """Of tensors that are stacks of matrices: which one."""
    every: int = 1
    """Which of the rows from there on: all, or one of so many."""
    transposed: bool = False
    """The matrix is stored as [in, out]; rows are counted in [out, in]."""

    @property
    def rows(self) -> slice:
        end = None if self.num_rows is None else self.first_row + self.num_rows
        return slice(self.first_row or None, end, None if self.every == 1 else self.every)


class WholeMap(NamedTuple):
    """The linear map that a projection is a part of."""

    in_features: int
    parts: Mapping[str, slice]
    """Rows of the whole output, by the checkpoint's own names."""
    combine: Combine | None = None
    """None: this process has the output already, or needs its own part alone."""
    stored: Mapping[str, StoredAs] = {}
    """Of parts that the checkpoint has under another name: where. Adapters may have these names, too."""
