"""What of a checkpoint's tensors one process has, where several compute one model together."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

Combine: TypeAlias = "Callable[[Tensor], Tensor]"
"""From a projection's output in this process, [T, out], to that of all parts together."""


class TensorPart(NamedTuple):
    """The rows and columns of a checkpoint's tensor that a part of the model has."""

    rows: slice = slice(None)
    columns: slice = slice(None)
    """Of a matrix."""

    def shape_of(self, whole: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of this part of a tensor with the shape `whole`."""
        cuts = zip(whole, self, strict=False)
        return tuple(len(range(*cut.indices(size))) for size, cut in cuts) + whole[2:]


class WholeMap(NamedTuple):
    """The linear map that a projection is a part of."""

    in_features: int
    parts: Mapping[str, slice]
    """Rows of the whole output, by the checkpoint's own names."""
    combine: Combine | None = None
    """None: this process has the output already, or needs its own part alone."""
