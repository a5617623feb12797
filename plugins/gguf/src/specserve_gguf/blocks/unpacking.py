"""Rows of blocks as a QuantisedWeight, some thousand blocks at a time on each core: what lies between is small, and so
is what is read at once."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from specserve.api.models import Factors, QuantisedWeight
from specserve_gguf.blocks.form import Parts

if TYPE_CHECKING:
    from torch import Tensor

    from specserve_gguf.blocks.form import Bytes, Form, Numbers, Small

NUMBERS_AT_ONCE = 1 << 18
MAX_THREADS = 8


class RawRows(Protocol):
    """An array of rows, or what reads them where they are asked for."""

    @property
    def shape(self) -> tuple[int, ...]:
        """[rows, blocks, bytes]"""

    def __getitem__(self, rows: slice, /) -> Bytes: ...


def unpacked(form: Form, raw: RawRows, block: int) -> QuantisedWeight:
    """raw: [rows, blocks, bytes], `block` numbers each -> [rows, blocks * block]."""
    rows, blocks, size = raw.shape
    whole = empty(form.unpack(np.zeros((1, size), np.uint8)), rows * blocks)
    at_once = max(NUMBERS_AT_ONCE // (block * blocks), 1)

    def unpack(begin: int) -> None:
        some = raw[begin : begin + at_once]
        places = slice(begin * blocks, (begin + len(some)) * blocks)
        for place, part in zip(whole, form.unpack(some.reshape(-1, size)), strict=True):
            if place is not None and part is not None:
                place[places] = part.reshape(len(part), *place.shape[1:])

    list(workers().map(unpack, range(0, rows, at_once)))  # numpy's loops run without the GIL
    offsets = None if whole.offset_units is None else joined(whole.offset_units, whole.offset_steps, rows)
    scales = joined(whole.units, whole.steps, rows)
    integers = torch.from_numpy(whole.integers.reshape(rows, -1))
    return QuantisedWeight(integers, scales, form.group_size, torch.float32, "int8", offsets, form.levels)


@cache
def workers() -> ThreadPoolExecutor:
    """The same threads for all tensors: what a thread frees is used again by itself alone."""
    return ThreadPoolExecutor(min(os.cpu_count() or 1, MAX_THREADS), "gguf")


def empty(first: Parts, num_blocks: int) -> Parts:
    """Places for the parts of so many blocks, as `first` has those of one."""

    def small(part: Small | None) -> Small | None:
        return None if part is None else np.empty((num_blocks, part.size), np.int8)

    offsets = None if first.offset_units is None else np.empty(num_blocks, np.float32)
    integers = np.empty((num_blocks, first.integers.size), np.int8)
    return Parts(integers, np.empty(num_blocks, np.float32), small(first.steps), offsets, small(first.offset_steps))


def joined(units: Numbers, steps: Small | None, rows: int) -> Tensor | Factors:
    """Scales or offsets: [rows, groups]."""
    by_row = torch.from_numpy(units.reshape(rows, -1))
    return by_row if steps is None else Factors(by_row, torch.from_numpy(steps.reshape(rows, -1)))
