"""The layers of a block head as trainable torch modules: those of Qwen3, whose keys and values of the text come from
the target's hidden states.

All blocks of a window are computed at once; each sees the text before it and its own rows. Letters: B windows, T tokens
of each, R rows of all blocks of a window, H hidden size, d head size.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn

from specserve_eagle.training.grouped_attention import KeysAndValues, attention_by_group, groups_of
from specserve_eagle.training.modules import Mlp, Norm, Rotation

if TYPE_CHECKING:
    from torch import Tensor

    from specserve_eagle.training.grouped_attention import Group
    from specserve_eagle.training.modules import HeadShape


class Places(NamedTuple):
    """Where rows lie and what they see, in every window."""

    text: Rotation
    """[T, d]."""
    rows: Rotation
    """[R, d]."""
    groups: list[Group]


def places_of(table: Rotation, length: int, anchors: Tensor, block_size: int) -> Places:
    """table: [positions, d] of the target; anchors: [A], ascending, the positions of the blocks' first rows."""
    positions = (anchors[:, None] + torch.arange(block_size, device=anchors.device)).flatten()
    text, rows = (Rotation(table.cos[at], table.sin[at]) for at in (slice(length), positions))
    return Places(text, rows, groups_of(anchors, block_size, partial(block_mask, block_size=block_size)))


def block_mask(anchors: Tensor, length: int, block_size: int) -> Tensor:
    """[R, length + R] bool: a row sees the text before its block, and the block."""
    begins = anchors.repeat_interleave(block_size)[:, None]
    before = torch.arange(length, device=anchors.device) < begins
    return torch.cat((before, begins == begins.T), 1)


class BlockAttention(nn.Module):
    """Attention of blocks over the text's keys and values and their own."""

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.head_dim = shape.head_dim
        width, narrow = (heads * shape.head_dim for heads in (shape.num_heads, shape.num_kv_heads))
        self.q_proj = nn.Linear(shape.hidden_size, width, bias=False)
        self.k_proj = nn.Linear(shape.hidden_size, narrow, bias=False)
        self.v_proj = nn.Linear(shape.hidden_size, narrow, bias=False)
        self.o_proj = nn.Linear(width, shape.hidden_size, bias=False)
        self.q_norm = Norm(shape.head_dim, shape.norm_eps)
        self.k_norm = Norm(shape.head_dim, shape.norm_eps)

    def forward(self, x: Tensor, text: Tensor, places: Places) -> Tensor:
        """x: [B, R, H]; text: [B, T, H]."""
        q = places.rows.rotate(self.q_norm(self.heads(self.q_proj(x))))
        of_text, own = (self.seen(part, at) for part, at in ((text, places.text), (x, places.rows)))
        out = attention_by_group(q.to(own.v.dtype), of_text, own, places.groups)
        projected: Tensor = self.o_proj(out.transpose(1, 2).flatten(2))
        return projected

    def seen(self, x: Tensor, rotation: Rotation) -> KeysAndValues:
        v = self.heads(self.v_proj(x))
        return KeysAndValues(rotation.rotate(self.k_norm(self.heads(self.k_proj(x)))).to(v.dtype), v)

    def heads(self, x: Tensor) -> Tensor:
        """[B, N, heads * d] -> [B, heads, N, d]."""
        return x.view(*x.shape[:2], -1, self.head_dim).transpose(1, 2)


class BlockLayer(nn.Module):
    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.input_layernorm = Norm(shape.hidden_size, shape.norm_eps)
        self.self_attn = BlockAttention(shape)
        self.post_attention_layernorm = Norm(shape.hidden_size, shape.norm_eps)
        self.mlp = Mlp(shape)

    def forward(self, x: Tensor, text: Tensor, places: Places) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), text, places)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Confidence(nn.Module):
    """The logit of the probability that a draft token is accepted. It begins at one half."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.proj = nn.Linear(inputs, 1)
        nn.init.zeros_(self.proj.weight)
        nn.init.zeros_(self.proj.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] -> [...]."""
        logits: Tensor = self.proj(x)[..., 0]
        return logits
