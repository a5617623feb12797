"""Memory for the rows of padded batches, at addresses that stay: what a captured graph reads.

Padding rows belong to no request: they go to no slot of the cache, and rows are independent of each other, so that they
change no bit of the real ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import torch

if TYPE_CHECKING:
    from specserve.batch.batch import Batch

PADDING_SLOT = -1
"""Kernels write no key or value there."""


class StaticRows:
    """`most_rows`: of the largest batch. Batches padded to the same number of rows lie at the same addresses."""

    def __init__(self, most_rows: int, device: torch.device) -> None:
        self.most_rows = most_rows
        self.memory = torch.zeros(3 * most_rows, dtype=torch.int64, device=device)

    def load(self, batch: Batch, rows: int) -> Batch:
        """The batch in this memory: its rows, then padding up to `rows`. All else of it stays as it is."""
        assert batch.num_rows <= rows <= self.most_rows, "a bucket holds the batch, and the memory holds the bucket"
        ids, positions, slots = self.memory[: 3 * rows].view(3, rows)
        for memory, own, padding in (
            (ids, batch.input_ids, 0), (positions, batch.positions, 0), (slots, batch.slots, PADDING_SLOT)
        ):  # fmt: skip
            memory[: batch.num_rows] = own
            memory[batch.num_rows :] = padding
        return msgspec.structs.replace(batch, input_ids=ids, positions=positions, slots=slots)
