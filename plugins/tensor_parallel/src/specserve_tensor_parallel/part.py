"""A rank's part of the model: what it loads, and how the parts' outputs become whole.

The same on every rank. Partial sums are gathered and added in the order of ranks, in float32, and rounded once to the
model's dtype: a row's bits depend on the configuration alone. Letters: T rows, H hidden size, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from specserve.api.models import ModelPart
from specserve_tensor_parallel.shares import EXPERTS, SHARED_EXPERT, Shares, check_divisible

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from specserve.api import Combine, TensorPart
    from specserve.api.models import ModelConfig
    from specserve_tensor_parallel.group import Group


class RankPart(ModelPart):
    """Extended by what starts the other ranks and by what obeys: they know how the ranks agree."""

    def __init__(self, rank: int, ranks: int, memory_share: float) -> None:
        self.rank, self.ranks, self.memory_share = rank, ranks, memory_share
        self.all_shares: list[Shares] = []
        """Of every rank, once the model's numbers are known."""
        self.group_or_none: Group | None = None
        """Once all ranks have loaded."""

    @property
    def shares(self) -> Shares:
        return self.all_shares[self.rank]

    @property
    def group(self) -> Group:
        assert self.group_or_none is not None, "ranks agree before they compute"
        return self.group_or_none

    # --- loading ------------------------------------------------------------------------------------

    def numbers(self, config: ModelConfig) -> ModelConfig:
        check_divisible(config, self.ranks)
        self.all_shares = [Shares(config, rank, self.ranks) for rank in range(self.ranks)]
        return self.shares.numbers(config)

    def tensor(self, name: str, shape: tuple[int, ...]) -> TensorPart | None:
        return self.shares.tensor(name)

    def combine(self, projection: str) -> Combine | None:
        """Norms, queries, keys and values, what is between the two maps of an MLP, and what a single or a shared expert
        gives are a rank's own."""
        if EXPERTS in projection or SHARED_EXPERT in projection:
            return None
        name, add = projection.rpartition(".")[2], self.add_parts
        return {"o_proj": add, "down_proj": add, "experts": add, "lm_head": self.join_logits}.get(name)

    # --- computing ----------------------------------------------------------------------------------

    def embed(self, rows: Callable[[Tensor], Tensor], ids: Tensor) -> Tensor:
        """Every row is that of the rank that has the token: no number is changed."""
        own = self.shares.vocabulary[self.rank]
        found = self.group.gather(rows((ids - own.start).clamp(0, own.stop - own.start - 1)))
        out = found[0]
        for share, theirs in zip(self.shares.vocabulary[1:], found[1:], strict=True):
            out = torch.where((ids >= share.start)[:, None], theirs, out)
        return out

    def add_parts(self, x: Tensor) -> Tensor:
        """x: [T, H], this rank's summand -> the sum, the same bits on every rank."""
        first, *others = self.group.gather(x)
        total = first.float()
        for part in others:
            total += part
        return total.to(x.dtype)

    def join_logits(self, x: Tensor) -> Tensor:
        """x: [T, V of this rank] -> [T, V] on rank 0; x on the others, which need no logits."""
        widths = [share.stop - share.start for share in self.shares.vocabulary]
        found = self.group.gather_to_first(F.pad(x, (0, max(widths) - x.shape[1])))
        return torch.cat([part[:, :width] for part, width in zip(found, widths, strict=True)], 1) if found else x
