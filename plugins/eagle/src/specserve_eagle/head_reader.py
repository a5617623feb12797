"""Reads a head's tensors in its target's dtype, onto its device; the target's own where the head has none."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.api.models import Projection
from specserve_eagle.draft_weights import finalize

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.api.models import ServedModel
    from specserve_eagle.checkpoints.tensors import HeadCheckpoint
    from specserve_eagle.options import DraftWeights


ROTATED = frozenset(("q_proj", "k_proj", "q_norm", "k_norm"))
"""The parts of a layer that give queries and keys."""


class Pairs(NamedTuple):
    """Of a head in whose files the numbers that are rotated together lie side by side."""

    head_dim: int
    rotary_dim: int


class HeadReader:
    """`weights`: how those of its linear maps are kept; `pairs`: None where halves are rotated."""

    def __init__(
        self, checkpoint: HeadCheckpoint, target: ServedModel, weights: DraftWeights, pairs: Pairs | None
    ) -> None:
        self.pairs = pairs
        self.checkpoint, self.target, self.kernels, self.weights = checkpoint, target, target.kernels, weights
        self.projections: dict[str, Projection] = {}
        """All that were made, by canonical name."""

    def embedding(self) -> Tensor:
        """[V, H]."""
        return self.tensor("embed_tokens") if self.checkpoint.has("embed_tokens") else self.target.whole_embedding()

    def lm_head(self) -> Projection:
        return self.projection("lm_head") if self.checkpoint.has("lm_head") else self.target.whole_head()

    def projection(self, name: str, *parts: str) -> Projection:
        """`parts` stacked as one product; the tensor `name` where there are none."""
        names = parts or (name,)
        weight = torch.cat([self.tensor(part) for part in names])
        biases = [self.tensor(f"{part}.bias") for part in names if self.checkpoint.has(f"{part}.bias")]
        return self.made(name, weight, torch.cat(biases) if biases else None)

    def made(
        self, name: str, weight: Tensor, bias: Tensor | None = None, kind: type[Projection] = Projection
    ) -> Projection:
        """weight: [out, in]."""
        made = kind(name, weight, bias, self.kernels.linear)
        finalize(made, self.kernels, self.weights, self.checkpoint.path)
        self.projections[name] = made
        return made

    def tensor(self, name: str) -> Tensor:
        read = self.checkpoint.take(name).to(self.target.device, self.target.dtype)
        if self.pairs is None or ROTATED.isdisjoint(name.split(".")):
            return read
        return in_halves(read, *self.pairs)


def in_halves(rows: Tensor, head_dim: int, rotary_dim: int) -> Tensor:
    """rows: [heads * head_dim, ...], of which numbers 2i and 2i + 1 of a head are rotated together; put i and
    i + rotary_dim / 2 there."""
    heads = rows.view(-1, head_dim, *rows.shape[1:])
    rotated, others = heads[:, :rotary_dim], heads[:, rotary_dim:]
    pairs = rotated.reshape(len(heads), rotary_dim // 2, 2, *rows.shape[1:])
    return torch.cat((pairs.transpose(1, 2).flatten(1, 2), others), 1).flatten(0, 1)
