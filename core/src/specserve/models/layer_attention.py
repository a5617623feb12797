"""Numbers of attention that differ from layer to layer: sizes of heads, and whose keys and values a layer reads."""

from __future__ import annotations

import msgspec

from specserve.kv.head_shape import HeadShape

OF_TARGET = -1
"""In place of an earlier layer, in a draft model: a layer of the target, which its drafter names."""


class LayerAttention(msgspec.Struct, frozen=True, kw_only=True):
    """Of one layer with attention."""

    num_kv_heads: int
    head_dim: int
    reads: int | None = None
    """The earlier layer whose keys and values it attends to, or `OF_TARGET`; it makes none then. None: it attends to
    its own."""
    projects_values: bool = True
    """False: values are what the keys' linear map gives."""

    @property
    def shape(self) -> HeadShape:
        return HeadShape(self.num_kv_heads, self.head_dim)


class TokenInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Every layer is given a vector of each token beside the hidden state, made of the token's id and its embedding
    ("per-layer embeddings" of Gemma 3n and 4)."""

    size: int
    """Numbers of a vector."""
    vocab_size: int
    """Tokens that the table of such vectors has."""
