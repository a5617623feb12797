"""Layers with multi-head latent attention (DeepSeek-V2, 2024), whose keys and values are kept as they are attended to.

Letters: T rows, H hidden size, h heads, d numbers of a query or a key, r those of them that are rotated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from specserve.api.models import AttentionInput, DecoderLayer, DecoderModel

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.api import KernelSet
    from specserve.api.models import BatchRows, Projection, Rotation
    from specserve_eagle.latent.config import LatentConfig

EPS = 1e-6
"""Of the norms of narrow rows, whatever config.json says of the others."""


@dataclass(frozen=True, slots=True)
class LatentMaps:
    """Of one layer, behind its input norm. The first r numbers of a query are rotated, as the engine does it."""

    config: LatentConfig
    query_norm: Tensor | None
    queries: Projection | None
    """To [h * d]; None where queries are given."""
    norm: Tensor
    keys_values: Projection
    """To [h * (d - r + value)]."""

    def __call__(self, narrow: Tensor, kernels: KernelSet) -> tuple[Tensor, Tensor, Tensor]:
        """narrow: [T, n], what queries are made of, what keys and values are made of, and the rotated part of keys ->
        queries, keys and values, [T, h, d] each; values are padded with zeros."""
        config = self.config
        of_queries, of_keys, rotated = narrow.tensor_split((-config.rank - config.rotated, -config.rotated), 1)
        if self.queries is not None:
            assert self.query_norm is not None
            of_queries = self.queries(kernels.rms_norm(of_queries.contiguous(), self.query_norm, EPS))
        q = of_queries.view(len(narrow), -1, config.head_dim)
        kept = self.keys_values(kernels.rms_norm(of_keys.contiguous(), self.norm, EPS)).view(*q.shape[:2], -1)
        plain, v = kept.split_with_sizes((config.plain, config.value), 2)
        k = torch.cat((rotated[:, None].expand(-1, q.shape[1], -1), plain), 2)
        return q, k, F.pad(v, (0, config.head_dim - config.value))


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentLayer(DecoderLayer):
    """`qkv_proj` gives what `latent` reads."""

    latent: LatentMaps


class LatentDecoder(DecoderModel):
    """All its layers are such."""

    def attention_input(
        self, layer: int, x: Tensor, rotation: Rotation | None, at: BatchRows, aux: Tensor | None = None
    ) -> AttentionInput:
        weights = self.layers[layer]
        assert isinstance(weights, LatentLayer)
        assert rotation is not None
        q, k, v = weights.latent(weights.qkv_proj(self.normed(x, weights.input_norm), at), self.kernels)
        q, k = self.kernels.rotary(torch.cat((q, k), 1), rotation.cos, rotation.sin).chunk(2, 1)
        return AttentionInput(q, k, v)
