"""A tensor of a model, as a GGUF file has it: which of the file's tensors, and what has to be undone."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from specserve_gguf.value_heads import ValueHeads

ALL_ROWS = slice(None)


class Part(NamedTuple):
    tensor: str
    """Its name in the file."""
    rows: slice = ALL_ROWS
    """Of the tensor, or of the matrix."""
    matrix: int | None = None
    """Which one, where the tensor is a stack of them."""
    heads: int | None = None
    """The rows of so many heads are in llama.cpp's order, in which the two that are rotated together are neighbours."""
    less: float = 0.0
    """Subtracted from what the file has."""
    of_channels: bool = False
    """Each row is a channel's of a convolution, which the model has as [channels, 1, taps]."""
    as_row: bool = False
    """It may be a vector, which the model has as a matrix of one row."""
    value_rows: ValueHeads | None = None
    """The rows that are in another order."""
    value_columns: ValueHeads | None = None
    """The columns that are."""
    is_decay: bool = False
    """The file has -exp(x) of what the model has."""
