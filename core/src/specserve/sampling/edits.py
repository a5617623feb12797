"""Edits of one row of logits in torch: what the core's processors do where no native sampler takes their edits."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

NEVER = float("-inf")
FORMATS = {torch.int64: ("q", "l") if array("l").itemsize == 8 else ("q",), torch.float32: ("f",)}
"""What the struct module calls them."""


class TorchRow:
    """`specserve.protocols.LogitEdits` of logits: [V] float32, changed in place."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits

    def penalize(
        self, ids: array[int], counts: array[float], repetition: float, presence: float, frequency: float, /
    ) -> None:
        at, times = self.ids(ids), self.floats(counts)
        x = self.logits[at]
        if repetition != 1.0:
            x = torch.where(x > 0, x / repetition, x * repetition)
        self.logits[at] = x - frequency * times - presence * (times > 0)

    def shift(self, ids: array[int], values: array[float], /) -> None:
        self.logits[self.ids(ids)] += self.floats(values)

    def keep_only(self, ids: array[int], /) -> None:
        at = self.ids(ids)
        kept = self.logits[at]
        self.logits.fill_(NEVER)[at] = kept

    def forbid(self, ids: array[int], /) -> None:
        self.logits[self.ids(ids)] = NEVER

    def ids(self, numbers: array[int]) -> Tensor:
        return self.tensor(numbers, torch.int64)

    def floats(self, numbers: array[float]) -> Tensor:
        return self.tensor(numbers, torch.float32)

    def tensor(self, numbers: array[int] | array[float], dtype: torch.dtype) -> Tensor:
        """Shares the array's memory on CPU; frombuffer takes no empty ones, and reads numbers of another type amiss."""
        lent = memoryview(numbers)
        if lent.format not in FORMATS[dtype]:
            raise ValueError(f"an edit takes ids as array('q') and values as array('f'); got format {lent.format!r}.")
        device = self.logits.device
        return (
            torch.frombuffer(lent, dtype=dtype).to(device) if len(lent) else torch.empty(0, dtype=dtype, device=device)
        )
