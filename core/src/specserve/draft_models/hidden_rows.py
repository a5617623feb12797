"""Hidden states of committed tokens that wait for a draft model, as rows of the steps that computed them.

A step's tensors are kept as they are and joined only when a draft model reads them, so that a step in which nothing is
drafted costs no tensor operation. Letters: T rows of a step, W numbers of a hidden state over all layers that are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.batch.builder import to_device

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch import Tensor


LONG_STEP = 64
"""Rows of a step beyond which some of them are copied rather than all kept."""


class StepHidden:
    """The hidden states that one step computed."""

    def __init__(self, hidden: Mapping[int, Tensor], layers: Sequence[int]) -> None:
        self.num_rows = len(hidden[layers[0]])
        self.parts: list[Tensor] | None = [hidden[layer] for layer in layers]
        self.rows: Tensor | None = None

    def joined(self) -> Tensor:
        """[T, W]."""
        if self.rows is None:
            assert self.parts is not None
            whole = whole_of(self.parts)
            self.rows = torch.cat(self.parts, -1) if whole is None else whole
            self.parts = None
        return self.rows


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


class JoinedHidden:
    """Hidden states that are joined already, as a block keeps them. rows: [n, W]."""

    def __init__(self, rows: Tensor) -> None:
        self.rows, self.num_rows = rows, len(rows)

    def joined(self) -> Tensor:
        return self.rows


class HiddenRows(NamedTuple):
    """Some rows of a step, in the order of their positions."""

    source: StepHidden | JoinedHidden | None
    """None where no hidden states are read."""
    rows: Sequence[int]


def num_rows(entries: Iterable[HiddenRows]) -> int:
    return sum(len(entry.rows) for entry in entries)


def gather(entries: Sequence[HiddenRows]) -> Tensor:
    """[sum of rows, W], in order."""
    offsets: dict[int, int] = {}
    tensors: list[Tensor] = []
    index: list[int] = []
    total = 0
    for source, rows in entries:
        assert source is not None
        offset = offsets.get(id(source))
        if offset is None:
            tensors.append(source.joined())
            offset = offsets[id(source)] = total
            total += len(tensors[-1])
        index += rows if offset == 0 else [offset + row for row in rows]
    stacked = tensors[0] if len(tensors) == 1 else torch.cat(tensors)
    if index == list(range(total)):
        return stacked
    return stacked.index_select(0, to_device(index, stacked.device))


def split_off(entries: Sequence[HiddenRows], count: int) -> list[HiddenRows]:
    """The last `count` rows. Those of a long step are copied, so that it need not be kept."""
    kept: list[HiddenRows] = []
    for entry in reversed(entries):
        if count <= 0:
            break
        last = entry._replace(rows=entry.rows[-count:])
        count -= len(last.rows)
        if entry.source is not None and entry.source.num_rows > LONG_STEP:
            last = HiddenRows(JoinedHidden(gather([last]).clone()), range(len(last.rows)))
        kept.append(last)
    return kept[::-1]
