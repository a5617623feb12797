"""Hidden states of committed tokens that wait for a draft model.

The latest positions of each sequence lie in a ring of fixed length, so that a step in which nothing is drafted costs
one copy. Rows that the ring has no room for, as of a prompt, stay in the tensor of the step that computed them until
they are read. Letters: T rows of a step, W numbers of a hidden state over all layers that are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.batch.builder import to_device

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor


def joined(hidden: Mapping[int, Tensor], layers: Sequence[int]) -> Tensor:
    """[T, W]; without a copy where they are columns of one tensor already."""
    parts = [hidden[layer] for layer in layers]
    whole = whole_of(parts)
    return torch.cat(parts, -1) if whole is None else whole


def whole_of(parts: Sequence[Tensor]) -> Tensor | None:
    """The tensor whose columns these are, one after the other; None where they are not."""
    first = parts[0]
    if len(parts) == 1:
        return first
    rows, width = first.shape
    begin, step = first.data_ptr(), width * first.element_size()
    for i, part in enumerate(parts):
        if part.stride() != (len(parts) * width, 1) or part.data_ptr() != begin + i * step:
            return None
    return first.as_strided((rows, len(parts) * width), first.stride())


class HiddenRing:
    """The `length` latest positions of each place, which is one sequence's: position p of it is row
    place * length + p % length. Grows with the number of places that are in use at once."""

    def __init__(self, rows: Tensor, length: int) -> None:
        """rows: [0, W] of the dtype and device of the hidden states."""
        self.rows, self.length = rows, length
        self.num_places = 0
        self.free: list[int] = []
        self.sources: list[int] = []
        self.targets: list[int] = []
        """Rows of the current step and where they go: written together, by `flush`."""

    def open(self) -> int:
        """A place for a sequence."""
        if not self.free:
            added = max(1, self.num_places)
            more = self.rows.new_zeros((added * self.length, self.rows.shape[1]))
            self.rows = torch.cat((self.rows, more))
            self.free = list(range(self.num_places + added - 1, self.num_places - 1, -1))
            self.num_places += added
        return self.free.pop()

    def close(self, place: int) -> None:
        self.free.append(place)

    def indices(self, place: int, positions: range) -> Sequence[int]:
        """Rows of these consecutive positions, at most `length` of them."""
        if not positions:
            return ()
        first = place * self.length
        begin = first + positions[0] % self.length
        end, limit = begin + len(positions), first + self.length
        if end <= limit:
            return range(begin, end)
        return [*range(begin, limit), *range(first, end - self.length)]

    def put(self, place: int, position: int, row: Tensor) -> None:
        """row: [W]."""
        self.rows[place * self.length + position % self.length] = row

    def note(self, sources: Sequence[int], place: int, first: int) -> None:
        """These rows of the current step are the hidden states of the positions from `first` on."""
        self.sources += sources
        self.targets += self.indices(place, range(first, first + len(sources)))

    def flush(self, step: Tensor) -> None:
        """Write what was noted. step: [T, W]."""
        sources, targets = self.sources, self.targets
        if not sources:
            return
        self.sources, self.targets = [], []
        if sources != list(range(len(step))):
            step = step.index_select(0, to_device(sources, step.device))
        self.rows.index_copy_(0, to_device(targets, step.device), step)


class LongRows(NamedTuple):
    """Consecutive positions that the ring had no room for."""

    first: int
    rows: Tensor
    """[n, W]."""

    @property
    def end(self) -> int:
        return self.first + len(self.rows)


def gather(pieces: Sequence[Tensor | Sequence[int]], ring: Tensor) -> Tensor:
    """[n, W]: tensors and rows of the ring, one after the other; without a copy where they are consecutive rows."""
    parts: list[Tensor] = []
    index: list[int] = []
    for piece in pieces:
        if isinstance(piece, torch.Tensor):
            if index:
                parts.append(rows_of(ring, index))
                index = []
            parts.append(piece)
        else:
            index += piece
    if index:
        parts.append(rows_of(ring, index))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def rows_of(ring: Tensor, index: Sequence[int]) -> Tensor:
    begin, count = index[0], len(index)
    if index[-1] == begin + count - 1 and index == list(range(begin, begin + count)):
        return ring[begin : begin + count]
    return ring.index_select(0, to_device(index, ring.device))
