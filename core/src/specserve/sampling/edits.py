"""Edits of one row of logits in torch: what the core's processors do where no native sampler takes their edits."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from torch import Tensor

NEVER = float("-inf")
ARRAY_FORMATS = {torch.int64: ("q", "l") if array("l").itemsize == 8 else ("q",), torch.float32: ("f",)}
"""Buffer formats of the struct module."""


class TorchRow:
    """`specserve.protocols.LogitEdits` of logits: [V] float32, changed in place."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits

    def penalize(
        self, ids: array[int], counts: array[float], repetition: float, presence: float, frequency: float, /
    ) -> None:
        at, times = self.ids(ids), self.floats(counts, ids)
        x = self.logits[at]
        if repetition != 1.0:
            x = torch.where(x > 0, x / repetition, x * repetition)
        self.logits[at] = x - frequency * times - presence * (times > 0)

    def shift(self, ids: array[int], values: array[float], /) -> None:
        self.logits[self.ids(ids)] += self.floats(values, ids)

    def keep_only(self, ids: array[int], /) -> None:
        at = self.ids(ids)
        kept = self.logits[at]
        self.logits.fill_(NEVER)[at] = kept

    def forbid(self, ids: array[int], /) -> None:
        self.logits[self.ids(ids)] = NEVER

    def keep_bits(self, bits: array[int], /) -> None:
        words = checked_bits(bits, len(self.logits))
        kept = np.unpackbits(words.view(np.uint8), count=len(self.logits), bitorder="little")
        self.logits.masked_fill_(torch.from_numpy(kept).to(self.logits.device) == 0, NEVER)

    def ids(self, numbers: array[int]) -> Tensor:
        return checked_ids(numbers, len(self.logits)).to(self.logits.device)

    def floats(self, numbers: array[float], ids: array[int]) -> Tensor:
        return checked_floats(numbers, ids).to(self.logits.device)


def checked_ids(numbers: array[int], vocab_size: int) -> Tensor:
    """Checked on the host: a negative one would count from the end, and one too large makes a CUDA device fail."""
    given = view(numbers, torch.int64)
    if len(given):
        least, most = (int(x) for x in given.aminmax())
        if least < 0 or most >= vocab_size:
            wrong = least if least < 0 else most
            raise ValueError(f"an edit's tokens must be in [0, {vocab_size}); got {wrong}.")
    return given


def checked_floats(numbers: array[float], ids: array[int]) -> Tensor:
    """One for each of the ids."""
    if len(numbers) != len(ids):
        raise ValueError(f"an edit takes one value per token; got {len(numbers)} values for {len(ids)} tokens.")
    return view(numbers, torch.float32)


def checked_bits(bits: array[int], vocab_size: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """One for each token of the vocabulary, in words of 32."""
    words = -(-vocab_size // 32)
    buffer = memoryview(bits)
    if buffer.format != "I" or len(buffer) != words:
        got = f"array({buffer.format!r}) of {len(buffer)}"
        raise ValueError(f"an edit takes bits as array('I') of {words} words, one bit per token; got {got}.")
    return np.frombuffer(buffer, np.uint32)


def view(numbers: array[int] | array[float], dtype: torch.dtype) -> Tensor:
    """A tensor over the array's memory; frombuffer refuses empty arrays and does not check the format."""
    buffer = memoryview(numbers)
    if buffer.format not in ARRAY_FORMATS[dtype]:
        raise ValueError(f"an edit takes ids as array('q') and values as array('f'); got format {buffer.format!r}.")
    return torch.frombuffer(buffer, dtype=dtype) if len(buffer) else torch.empty(0, dtype=dtype)
