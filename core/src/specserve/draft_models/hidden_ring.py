"""A ring for each sequence that holds the hidden states of its latest positions.

What a step computed is noted, and written for all sequences in one copy, before it is read or the next step begins.
Letters: T rows of a step, W numbers of a hidden state over all layers that are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from specserve.batch.builder import to_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.draft_models.step_hidden import StepHidden


class HiddenRing:
    """The `length` latest positions of each place, which is one sequence's: position p of it is row
    place * length + p % length. Grows with the number of places that are in use at once."""

    def __init__(self, rows: Tensor, length: int) -> None:
        """rows: [0, W] of the dtype and device of the hidden states."""
        self.written, self.length = rows, length
        self.num_places = 0
        self.free: list[int] = []
        self.step: StepHidden | None = None
        self.sources: list[int] = []
        self.targets: list[int] = []
        """What was noted: rows of the step and rows of the ring."""

    def open(self) -> int:
        """A place for a sequence."""
        if not self.free:
            added = max(1, self.num_places)
            more = self.written.new_zeros((added * self.length, self.written.shape[1]))
            self.written = torch.cat((self.written, more))
            self.free = list(range(self.num_places + added - 1, self.num_places - 1, -1))
            self.num_places += added
        return self.free.pop()

    def close(self, place: int) -> None:
        self.write()  # no row of the ring may be noted twice
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

    def begin(self, step: StepHidden) -> None:
        """Rows of this step are noted next."""
        self.write()
        self.step = step

    def note(self, sources: Sequence[int], place: int, first: int) -> None:
        """These rows of the step are the hidden states of the positions from `first` on."""
        self.sources += sources
        self.targets += self.indices(place, range(first, first + len(sources)))

    def put(self, place: int, position: int, row: Tensor) -> None:
        """row: [W]."""
        self.write()
        self.written[place * self.length + position % self.length] = row

    def rows(self) -> Tensor:
        """[places * length, W]."""
        self.write()
        return self.written

    def write(self) -> None:
        """Write what was noted."""
        sources, targets = self.sources, self.targets
        if not sources:
            return
        assert self.step is not None, "rows were noted of it"
        self.sources, self.targets = [], []
        rows = chosen(self.step.joined(), sources)
        if are_consecutive(targets):
            self.written[targets[0] : targets[-1] + 1] = rows
        else:
            self.written.index_copy_(0, to_device(targets, rows.device), rows)


def chosen(rows: Tensor, index: Sequence[int]) -> Tensor:
    """Some rows; a view where they are consecutive."""
    if are_consecutive(index):
        return rows[index[0] : index[-1] + 1]
    return rows.index_select(0, to_device(index, rows.device))


def are_consecutive(numbers: Sequence[int]) -> bool:
    first, count = numbers[0], len(numbers)
    return numbers[-1] == first + count - 1 and (count < 3 or list(numbers) == list(range(first, first + count)))
