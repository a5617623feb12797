"""A model's tensors under the names that are looked for: checked, read, and counted as progress.

Knows nothing about how they are stored (`specserve.models.weight_format`) and nothing about what they mean.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from specserve.errors import ModelError
from specserve.models.quantised import columns_of, dense
from specserve.models.weight_format import (
    ALL_ROWS,
    DOWNLOAD_AGAIN,
    FLOATS,
    StoredTensor,
    WeightSource,
    expect,
    missing_tensor,
)
from specserve.protocols.part import TensorPart
from specserve.protocols.quantised import QuantisedWeight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor

    Progress = Callable[[int, int], None]


WHOLE = TensorPart()
NUMBERS_AT_ONCE = 1 << 21
"""Of a piece: what it takes unpacked stays small, and reading it takes far longer than asking for it."""
ROWS_MULTIPLE = 64
"""Kernels pack rows in panels, and multiply some panels at once."""


class View(NamedTuple):
    """A tensor that the file has under another name, or some rows of it, or of one of the matrices that it stacks."""

    stored: str
    rows: slice = ALL_ROWS
    of_stack: int | None = None
    transposed: bool = False
    """The matrix is stored as [in, out]; `rows` are of [out, in]. Only of stacks."""


class Checkpoint:
    """The tensors of one model, by name. `take` reads data."""

    def __init__(self, source: WeightSource, on_progress: Progress | None = None) -> None:
        self.source, self.path = source, source.path
        self._on_progress = on_progress
        self._views = {name: View(name) for name in source.tensors}
        self._done = 0
        self._total = sum(tensor.num_bytes for tensor in source.tensors.values())

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._views)

    def find(self, name: str) -> StoredTensor:
        """What is known of it. ModelError where it is missing."""
        if (view := self._views.get(name)) is None:
            raise missing_tensor(self.path, name, len(self._views))
        found, rows = self.source.find(view.stored), view.rows
        if view.of_stack is not None:
            shape = found.shape[:0:-1] if view.transposed else found.shape[1:]
            found = found._replace(shape=shape, num_bytes=found.num_bytes // max(found.shape[0], 1))
        if rows == ALL_ROWS:
            return found
        all_rows, *others = found.shape or (0,)
        taken = len(range(*rows.indices(all_rows)))
        return found._replace(shape=(taken, *others), num_bytes=found.num_bytes * taken // max(all_rows, 1))

    def rename(self, old: str, new: str) -> None:
        """The tensor has another name from now on."""
        self.split({new: View(old)})

    def split(self, parts: Mapping[str, View]) -> None:
        """Parts of whole tensors are tensors of these names from now on, and no longer of those that they had."""
        stored = {name: self._views.pop(name).stored for name in {view.stored for view in parts.values()}}
        self._views |= {name: view._replace(stored=stored[view.stored]) for name, view in parts.items()}

    def forget(self, name: str) -> None:
        """There is no such tensor from now on."""
        del self._views[name]

    def check(self, expected: Mapping[str, tuple[int, ...]]) -> None:
        """Every expected tensor is there, of that shape, and floating point unless it is quantised."""
        for name, shape in expected.items():
            found = self.find(name)
            expect(found, name, shape, (found.dtype,) if found.quantised else FLOATS, "config.json")

    def take(self, name: str, part: TensorPart = WHOLE) -> Tensor | QuantisedWeight:
        """The tensor, or a part of it, read from disk; counts as progress."""
        tensor = self._part(name, part)
        self._count(name)
        return tensor

    def pieces(self, parts: Mapping[str, TensorPart]) -> Iterator[Tensor | QuantisedWeight]:
        """What `take` gives of these tensors, one after the other: so many rows at a time as have some million numbers.
        A matrix of a stack comes whole, as formats read it."""
        for name, part in parts.items():
            yield from self._pieces(name, part)
            self._count(name)

    def _pieces(self, name: str, part: TensorPart) -> Iterator[Tensor | QuantisedWeight]:
        all_rows, *others = self.find(name).shape
        rows = range(*part.rows.indices(all_rows))
        at_once = max(NUMBERS_AT_ONCE // max(math.prod(others), 1) // ROWS_MULTIPLE, 1) * ROWS_MULTIPLE
        if self._views[name].of_stack is not None:
            at_once = max(len(rows), 1)
        for some in (rows[begin : begin + at_once] for begin in range(0, len(rows), at_once)):
            yield self._part(name, part._replace(rows=slice(some.start, some.stop, some.step)))

    def _part(self, name: str, part: TensorPart) -> Tensor | QuantisedWeight:
        try:
            return columns_of(self.rows(name, part.rows), part)
        except ValueError as error:
            raise ModelError(
                f"{self.find(name).file}: tensor {name} cannot be cut: {error}. Use the unquantised checkpoint."
            ) from None

    def _count(self, name: str) -> None:
        self._done += self.find(name).num_bytes
        if self._on_progress is not None:
            self._on_progress(self._done, self._total)

    def rows(self, name: str, rows: slice = ALL_ROWS) -> Tensor | QuantisedWeight:
        """Some rows of a tensor, read from disk; they do not count as progress."""
        found = self.find(name)
        view = self._views[name]
        try:
            if view.of_stack is not None:
                stack = self.source.read(view.stored, slice(view.of_stack, view.of_stack + 1))
                return rows_of_matrix(stack, view, rows)
            return self.source.read(view.stored, within(view.rows, rows, self.source.find(view.stored)))
        except OSError as error:
            raise ModelError(f"{found.file}: tensor {name} cannot be read: {error}. {DOWNLOAD_AGAIN}") from None

    def finish(self) -> None:
        """Nothing more will be read: progress ends at the total even where tensors were not used."""
        if self._on_progress is not None and self._done < self._total:
            self._done = self._total
            self._on_progress(self._done, self._total)
        self._on_progress = None  # deferred weights are read while they are packed, which has a progress of its own


def rows_of_matrix(stack: Tensor | QuantisedWeight, view: View, rows: slice) -> Tensor | QuantisedWeight:
    """Of the rows of a view, these. stack: [1, out, in], or [1, in, out] where the view is transposed."""
    if isinstance(stack, QuantisedWeight) and not view.transposed:
        return stack.mapped(lambda tensor: tensor[0][view.rows][rows])
    matrix = dense(stack)[0]
    return (matrix.T if view.transposed else matrix)[view.rows][rows]


def within(view: slice, rows: slice, stored: StoredTensor) -> slice:
    """The rows of the tensor that are `rows` of its rows `view`."""
    if ALL_ROWS in (view, rows):
        return rows if view == ALL_ROWS else view
    picked = range(*view.indices(stored.shape[0]))[rows]
    return slice(picked.start, picked.stop, picked.step)
