"""Memory for the rows of padded batches, at addresses that stay: what a captured graph reads.

Padding rows belong to no request: they go to no slot of the cache, and rows are independent of each other, so that they
change no bit of the real ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from specserve.api.batch import Batch, DeviceRows, copy_into

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.api.batch import LoraPlan

PADDING_SLOT = -1
"""Kernels write no key or value there."""


class StaticRows:
    """`max_rows`: of the largest batch. Batches padded to the same number of rows lie at the same addresses."""

    def __init__(self, max_rows: int, device: torch.device) -> None:
        self.max_rows, self.device = max_rows, device
        self.memory = torch.zeros(3 * max_rows, dtype=torch.int64, device=device)
        self.views: dict[int, Tensor] = {}

    def view(self, rows: int) -> Tensor:
        """[3, rows]: ids, positions and slots of batches padded to `rows`."""
        if rows not in self.views:
            self.views[rows] = self.memory[: 3 * rows].view(3, rows)
        return self.views[rows]

    def padded(self, rows: int, block_size: int, lora: LoraPlan | None = None) -> Batch:
        """The batch in this memory, whatever is loaded: of no request, with every row scored."""
        return Batch(
            spans=(),
            rows=DeviceRows(*self.view(rows).unbind()),
            scored_rows=None,
            query_lens=(),
            row_offsets=(),
            scored_offsets=(),
            num_rows=rows,
            num_scored=rows,
            block_size=block_size,
            lora=lora,
        )

    def load(self, host_rows: Tensor, rows: int) -> None:
        """host_rows: [3, T] int64, as in `Batch`. Rows beyond T become padding. One copy to the device."""
        count, view = host_rows.shape[1], self.view(rows)
        assert count <= rows <= self.max_rows, "a bucket holds the batch, and the memory holds the bucket"
        if count == rows:
            copy_into(view, host_rows, self.device)
            return
        source = view if self.device.type == "cpu" else torch.empty(view.shape, dtype=torch.int64)
        source[:, :count] = host_rows
        source[:2, count:] = 0
        source[2, count:] = PADDING_SLOT
        if source is not view:
            copy_into(view, source, self.device)
