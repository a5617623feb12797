"""The hidden states of a step, or of several: over all layers that are read, and of all steps, as one tensor.

Letters: T rows of all steps, W numbers of a hidden state over all layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor


class StepHidden:
    """The hidden states that one step computed, or several."""

    def __init__(self, steps: Sequence[Mapping[int, Tensor]], layers: Sequence[int]) -> None:
        self.parts = [[hidden[layer] for layer in layers] for hidden in steps]

    def joined(self) -> Tensor:
        """[T, W]; without a copy where they lie in one tensor already."""
        steps = merged([columns_of(parts) for parts in self.parts])
        return steps[0] if len(steps) == 1 else torch.cat(steps)


def columns_of(parts: Sequence[Tensor]) -> Tensor:
    """The tensor whose columns these are, one after the other."""
    first = parts[0]
    if len(parts) == 1:
        return first
    rows, width = first.shape
    begin, step = first.data_ptr(), width * first.element_size()
    for i, part in enumerate(parts):
        if part.stride() != (len(parts) * width, 1) or part.data_ptr() != begin + i * step:
            return torch.cat(tuple(parts), -1)
    return first.as_strided((rows, len(parts) * width), first.stride())


def merged(parts: Sequence[Tensor]) -> list[Tensor]:
    """The same rows; neighbours that follow each other in memory are one tensor."""
    found = [parts[0]]
    for part in parts[1:]:
        last = found[-1]
        if follows(part, last):
            found[-1] = last.as_strided((len(last) + len(part), last.shape[1]), last.stride())
        else:
            found.append(part)
    return found


def follows(part: Tensor, last: Tensor) -> bool:
    """Whether its first row lies behind the last row of the other, in the same storage."""
    offset, size = part.storage_offset() - last.storage_offset(), part.element_size()
    return (
        offset == last.numel()
        and part.data_ptr() - last.data_ptr() == offset * size
        and part.is_contiguous()
        and last.is_contiguous()
    )
