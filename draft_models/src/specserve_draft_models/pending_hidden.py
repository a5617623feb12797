"""Hidden states of committed tokens that wait for a draft model.

Those of the latest steps are read where these left them: most are read at once or never. Before others begin, what
still waits of them goes to a ring, which holds the latest positions of each sequence. Rows that it has no room for, as
of a prompt, stay in the tensor of the step that computed them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve_draft_models.hidden_ring import HiddenRing, chosen
from specserve_draft_models.sequences import NO_ROWS
from specserve_draft_models.step_hidden import StepHidden

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from specserve_draft_models.sequences import FedSequence


MAX_LATEST_ROWS = 512
"""Rows of the latest steps, all of which take memory, those of wrong draft tokens, too."""


class RingRows(NamedTuple):
    """Rows of the ring."""

    numbers: Sequence[int]


class StepRows(NamedTuple):
    """Rows of the latest steps."""

    numbers: Sequence[int]


if TYPE_CHECKING:
    Piece = Tensor | RingRows | StepRows


class PendingHidden:
    """The pending hidden states of all sequences. `layers`: those that are read; rows: [0, W] of their dtype and
    device; `length`: of a ring."""

    def __init__(self, layers: Sequence[int], rows: Tensor, length: int) -> None:
        self.layers, self.ring = layers, HiddenRing(rows, length)
        self.latest, self.first_row = StepHidden((), layers), 0
        """The latest steps, and the first row of those that rows are noted of."""
        self.noted: list[FedSequence] = []
        """Sequences that have rows in the latest steps."""

    def begin(self, steps: Sequence[Mapping[int, Tensor]]) -> None:
        """Rows of a step, or of several, wait from now on; `note` says which of them."""
        self.keep()
        self.latest, self.first_row = StepHidden(steps, self.layers), 0

    def add(self, step: Mapping[int, Tensor]) -> None:
        """The same for one step. What waits of those before it stays where it is, as long as they are not many."""
        if self.latest.num_rows <= MAX_LATEST_ROWS and any(unread(sequence) for sequence in self.noted):
            self.first_row = self.latest.num_rows
            self.latest.append(step)
        else:
            self.begin([step])

    def keep(self) -> None:
        """Write to the ring what still waits of the latest steps."""
        sources: list[int] = []
        targets: list[int] = []
        for sequence in self.noted:
            if count := unread(sequence):
                first, rows = sequence.latest
                sources += rows[-count:]
                end = first + len(rows)
                targets += self.ring.indices(self.place(sequence), range(end - count, end))
            sequence.latest = NO_ROWS
        self.noted = []
        if sources:
            self.ring.write(targets, chosen(self.latest.joined(), sources))

    def note(self, sequence: FedSequence, first: int, rows: Sequence[int]) -> None:
        """These rows of the step are of the positions from `first` on."""
        if self.first_row:
            rows = [self.first_row + row for row in rows]
        begin, before = sequence.latest
        if first + len(rows) - (sequence.num_fed - 1) > self.ring.length:
            if before:
                self.keep()  # `long` is before `latest`
            sequence.long.append((first, chosen(self.latest.joined(), rows)))
        elif before:
            sequence.latest = begin, [*before, *rows]
        else:
            sequence.latest = first, rows
            self.noted.append(sequence)

    def put(self, sequence: FedSequence, position: int, row: Tensor) -> None:
        """row: [W]."""
        self.ring.write(self.ring.indices(self.place(sequence), range(position, position + 1)), row[None])

    def copied(self, sequence: FedSequence, begin: int, end: int) -> list[tuple[int, Tensor]]:
        """The positions [begin, end), all of which wait, as `FedSequence.long` has them."""
        return [(begin, self.gather(self.pieces(sequence, begin, end)))]

    def place(self, sequence: FedSequence) -> int:
        if sequence.place < 0:
            sequence.place = self.ring.open()
        return sequence.place

    def pieces(self, sequence: FedSequence, begin: int, end: int) -> list[Piece]:
        """The positions [begin, end), all of which wait."""
        found: list[Piece] = []
        for first, rows in sequence.long:
            if begin < min(first, end):
                found.append(RingRows(self.ring.indices(sequence.place, range(begin, min(first, end)))))
                begin = first
            last = min(end, first + len(rows))
            if begin < last:
                found.append(rows[begin - first : last - first])
                begin = last
        first, latest = sequence.latest
        in_ring = min(first, end) if latest else end
        if begin < in_ring:
            found.append(RingRows(self.ring.indices(sequence.place, range(begin, in_ring))))
            begin = in_ring
        if begin < end:
            found.append(StepRows(latest[begin - first : end - first]))
        return found

    def gather(self, pieces: Sequence[Piece]) -> Tensor:
        """[n, W], contiguous, one piece after the other; without a copy where they are consecutive whole rows."""
        parts: list[Tensor] = []
        index: list[int] = []
        kind: type[Piece] = torch.Tensor
        for piece in pieces:
            if index and not isinstance(piece, kind):
                parts.append(self.rows_of(kind, index))
                index = []
            if isinstance(piece, torch.Tensor):
                parts.append(piece)
            else:
                kind = type(piece)
                index += piece.numbers
        if index:
            parts.append(self.rows_of(kind, index))
        return parts[0].contiguous() if len(parts) == 1 else torch.cat(parts)

    def rows_of(self, kind: type[Piece], index: Sequence[int]) -> Tensor:
        return chosen(self.latest.joined() if kind is StepRows else self.ring.rows, index)

    def shorten(self, sequence: FedSequence, end: int) -> None:
        """What still waits of long steps, before position `end`, goes to the ring, so that their tensors need not be
        kept."""
        first = sequence.num_fed - 1
        if end - first > self.ring.length:
            return  # a pass raised
        for begin, rows in sequence.long:
            for position in range(max(begin, first), begin + len(rows)):
                self.put(sequence, position, rows[position - begin])
        sequence.long = []

    def forget(self, sequence: FedSequence) -> None:
        sequence.long = []
        if sequence.latest is not NO_ROWS:
            sequence.latest = NO_ROWS
            self.noted.remove(sequence)
        if sequence.place >= 0:
            self.ring.close(sequence.place)
            sequence.place = -1


def unread(sequence: FedSequence) -> int:
    """How many of its rows in the latest steps wait."""
    first, rows = sequence.latest
    return max(0, min(len(rows), first + len(rows) - (sequence.num_fed - 1)))
