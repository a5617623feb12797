"""What recorded passes read and write: allocated once, for the largest bucket, and shared by all of them.

Letters: T rows, H hidden size, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.api.batch import HiddenStates
from specserve_graphs.static_rows import StaticRows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from specserve.api.models import ServedModel
    from specserve_graphs.preceding_memory import PrecedingMemory


class RowSizes(NamedTuple):
    """Numbers of a row."""

    hidden: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab: int


def row_sizes(model: ServedModel, *, has_logits: bool) -> RowSizes:
    """`has_logits`: are they computed in full graphs?"""
    vocab = model.vocab_size if has_logits else 0
    return RowSizes(model.hidden_size, model.num_heads, model.num_kv_heads, model.head_dim, vocab)


class GraphMemory:
    """`max_rows`: of the largest bucket."""

    def __init__(self, max_rows: int, sizes: RowSizes, dtype: torch.dtype, device: torch.device) -> None:
        self.max_rows, self.sizes, self.dtype, self.device = max_rows, sizes, dtype, device
        self.rows = StaticRows(max_rows, device)
        self.x = self.empty(sizes.hidden)
        """The last layer's output."""
        self.queries, self.attended = (self.empty(sizes.num_heads, sizes.head_dim) for _ in range(2))
        self.keys, self.values = (self.empty(sizes.num_kv_heads, sizes.head_dim) for _ in range(2))
        self.logits = self.empty(sizes.vocab, dtype=torch.float32)
        self.greedy = self.empty(dtype=torch.int64)
        """The token of the largest logit of each row, where a graph computes it."""
        self.hidden: dict[tuple[int, ...], Tensor] = {}
        """By the layers that are read, in ascending order: [T, numbers of all of them]."""
        self.of_mixers: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        """By the numbers of a row that mixers are given, and those that they give: [T, n] of both."""
        self.preceding: PrecedingMemory | None = None
        """Where mixers of full graphs read slots; None where they read none."""

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Zeros, so that padding holds numbers."""
        return torch.zeros((self.max_rows, *shape), dtype=dtype or self.dtype, device=self.device)

    def taps(self, layers: tuple[int, ...], rows: int) -> Mapping[int, Tensor]:
        """Where a pass over `rows` rows copies the outputs of these layers."""
        if not layers:
            return {}
        if layers not in self.hidden:
            self.hidden[layers] = self.empty(self.sizes.hidden * len(layers))
        return HiddenStates(layers, self.hidden[layers], 0, rows)

    def around_mixer(self, given: int, mixed: int) -> tuple[Tensor, Tensor]:
        """What mixers of these widths read, and what they write."""
        if (given, mixed) not in self.of_mixers:
            self.of_mixers[given, mixed] = self.empty(given), self.empty(mixed)
        return self.of_mixers[given, mixed]

    @staticmethod
    def bytes_for(max_rows: int, sizes: RowSizes, dtype: torch.dtype) -> int:
        """Without hidden states and the rows of mixers."""
        attention = 2 * (sizes.num_heads + sizes.num_kv_heads) * sizes.head_dim
        of_ids = 4 * torch.int64.itemsize  # those of `rows` and `greedy`
        return max_rows * ((sizes.hidden + attention) * dtype.itemsize + sizes.vocab * torch.float32.itemsize + of_ids)

    @property
    def num_bytes(self) -> int:
        tensors = (
            self.rows.memory, self.x, self.queries, self.attended, self.keys, self.values, self.logits, self.greedy,
            *self.hidden.values(), *(rows for both in self.of_mixers.values() for rows in both),
        )  # fmt: skip
        of_slots = 0 if self.preceding is None else self.preceding.num_bytes
        return of_slots + sum(tensor.nbytes for tensor in tensors)
