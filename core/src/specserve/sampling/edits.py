"""Edits of one row of logits in torch: what the core's processors do where no native sampler takes their edits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from array import array

    from torch import Tensor

NEVER = float("-inf")


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
        """Shares the array's memory on CPU; frombuffer takes no empty ones."""
        device = self.logits.device
        return (
            torch.frombuffer(numbers, dtype=dtype).to(device) if numbers else torch.empty(0, dtype=dtype, device=device)
        )
