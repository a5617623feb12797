"""The tokens before the rows of padded batches, at addresses that stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from specserve.api.batch import TokenSlots, copy_into, slots_before
from specserve_graphs.static_rows import PADDING_SLOT

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.api.batch import Batch

NONE = -1
"""As `slots_before` says that there is no token."""


class PrecedingMemory:
    """`max_rows`: of the largest batch; `reach`: how many tokens before a row are read."""

    def __init__(self, max_rows: int, reach: int, device: torch.device) -> None:
        self.reach, self.device = reach, device
        self.copied = torch.zeros(max_rows * (1 + reach), dtype=torch.int64, device=device)
        """The slots of all rows, then those of the tokens before each."""
        self.before = torch.zeros(max_rows * reach, dtype=torch.int64, device=device)
        self.exists = torch.zeros(max_rows * reach, dtype=torch.bool, device=device)
        self.views: dict[int, TokenSlots] = {}

    @property
    def num_bytes(self) -> int:
        return self.copied.nbytes + self.before.nbytes + self.exists.nbytes

    def view(self, rows: int) -> TokenSlots:
        """Of batches that are padded to so many rows."""
        if rows not in self.views:
            before, exists = (of_all[: rows * self.reach].view(rows, -1) for of_all in (self.before, self.exists))
            self.views[rows] = TokenSlots(self.copied[:rows], before, exists, padded=True)
        return self.views[rows]

    def load(self, batch: Batch | None, rows: int) -> None:
        """Rows beyond the batch's are padding; None: all are. One copy to the device."""
        host = torch.full((rows * (1 + self.reach),), PADDING_SLOT)
        if batch is not None:
            count = batch.num_rows
            host[:count] = batch.host_rows[2]
            host[rows : rows + count * self.reach] = slots_before(batch, self.reach).flatten()
        copied: Tensor = self.copied[: len(host)]
        copy_into(copied, host, self.device)
        numbers = rows * self.reach
        torch.clamp(copied[rows:], min=0, out=self.before[:numbers])
        torch.ne(copied[rows:], NONE, out=self.exists[:numbers])
