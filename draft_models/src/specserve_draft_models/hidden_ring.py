"""A ring for each sequence that holds the hidden states of its latest positions. W: numbers of a hidden state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from specserve.batch.row_tensors import to_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


class HiddenRing:
    """The `length` latest positions of each place, which is one sequence's: position p of it is row
    place * length + p % length. Grows with the number of places that are in use at once."""

    def __init__(self, rows: Tensor, length: int) -> None:
        """rows: [0, W] of the dtype and device of the hidden states."""
        self.rows, self.length = rows, length
        self.num_places = 0
        self.free: list[int] = []

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

    def write(self, index: Sequence[int], rows: Tensor) -> None:
        """rows: [n, W] for these n rows, all different."""
        if are_consecutive(index):
            self.rows[index[0] : index[-1] + 1] = rows
        else:
            self.rows.index_copy_(0, to_device(index, rows.device), rows)


def chosen(rows: Tensor, index: Sequence[int]) -> Tensor:
    """Some rows; a view where they are consecutive."""
    if are_consecutive(index):
        return rows[index[0] : index[-1] + 1]
    return rows.index_select(0, to_device(index, rows.device))


def are_consecutive(numbers: Sequence[int]) -> bool:
    first, count = numbers[0], len(numbers)
    return numbers[-1] == first + count - 1 and (count < 3 or list(numbers) == list(range(first, first + count)))
