"""Hidden states of committed tokens that wait for a draft model.

Those of the latest positions lie in a ring. Rows that it has no room for, as of a prompt, stay in the tensor of the
step that computed them until they are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from specserve.draft_models.hidden_ring import HiddenRing, chosen
from specserve.draft_models.step_hidden import StepHidden

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from specserve.draft_models.sequences import FedSequence

    Piece = Tensor | Sequence[int]
    """Rows, or which rows of the ring."""


class WaitingHidden:
    """Of all sequences. `layers`: those that are read; rows: [0, W] of their dtype and device; `length`: of a ring."""

    def __init__(self, layers: Sequence[int], rows: Tensor, length: int) -> None:
        self.layers, self.ring = layers, HiddenRing(rows, length)
        self.step: StepHidden | None = None

    def begin(self, steps: Sequence[Mapping[int, Tensor]]) -> None:
        """Rows of a step, or of several, wait from now on; which of them, `note` tells."""
        self.step = StepHidden(steps, self.layers)
        self.ring.begin(self.step)

    def note(self, sequence: FedSequence, first: int, rows: Sequence[int]) -> None:
        """These rows of the step are of the positions from `first` on."""
        if first + len(rows) - (sequence.num_fed - 1) > self.ring.length:
            assert self.step is not None
            sequence.long.append((first, chosen(self.step.joined(), rows)))
        else:
            self.ring.note(rows, self.place(sequence), first)

    def put(self, sequence: FedSequence, position: int, row: Tensor) -> None:
        """row: [W]."""
        self.ring.put(self.place(sequence), position, row)

    def place(self, sequence: FedSequence) -> int:
        if sequence.place < 0:
            sequence.place = self.ring.open()
        return sequence.place

    def pieces(self, sequence: FedSequence, begin: int, end: int) -> list[Piece]:
        """The positions [begin, end), all of which wait."""
        found: list[Piece] = []
        for first, rows in sequence.long:
            if begin >= end:
                return found
            if begin < first:
                found.append(self.ring.indices(sequence.place, range(begin, min(first, end))))
                begin = first
            last = min(end, first + len(rows))
            if begin < last:
                found.append(rows[begin - first : last - first])
                begin = last
        if begin < end:
            found.append(self.ring.indices(sequence.place, range(begin, end)))
        return found

    def gather(self, pieces: Sequence[Piece]) -> Tensor:
        """[n, W], one piece after the other; without a copy where they are consecutive rows."""
        parts: list[Tensor] = []
        index: list[int] = []
        for piece in pieces:
            if isinstance(piece, torch.Tensor):
                if index:
                    parts.append(chosen(self.ring.rows(), index))
                    index = []
                parts.append(piece)
            else:
                index += piece
        if index:
            parts.append(chosen(self.ring.rows(), index))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

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
        if sequence.place >= 0:
            self.ring.close(sequence.place)
            sequence.place = -1
