"""Draft heads as trainable torch modules, with the arithmetic of the published architectures.

A head takes pairs (hidden state p, token p + 1) and gives its own hidden state and logits. In training it is unrolled:
step j reads the hidden states that step j - 1 gave, and sees the pairs of the text up to p and its own of the steps
before, as it does when it drafts (EAGLE-3, Li et al., 2025, "training-time test").
Letters: B windows, N positions of each, H hidden size, V target vocabulary, D draft vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.api.models import ModelConfig
    from specserve_eagle.checkpoints import HeadConfig


ROWS_AT_ONCE = 128
"""Positions whose attention is computed together."""


class HeadShape(NamedTuple):
    """The numbers of a draft layer."""

    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float

    @classmethod
    def of(cls, config: ModelConfig | HeadConfig) -> HeadShape:
        return cls(
            config.hidden_size,
            config.intermediate_size,
            config.num_heads,
            config.num_kv_heads,
            config.head_dim,
            config.norm_eps,
        )


class Norm(nn.Module):
    """RMSNorm that rounds before it multiplies, as the kernels that serve it do."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), self.weight.shape, None, self.eps).to(x.dtype) * self.weight


class Attention(nn.Module):
    """Causal over the text's pairs; the pairs of earlier unrolled steps are seen at the own position only."""

    def __init__(self, inputs: int, shape: HeadShape) -> None:
        super().__init__()
        self.shape = shape
        width = shape.num_heads * shape.head_dim
        self.q_proj = nn.Linear(inputs, width, bias=False)
        self.k_proj = nn.Linear(inputs, shape.num_kv_heads * shape.head_dim, bias=False)
        self.v_proj = nn.Linear(inputs, shape.num_kv_heads * shape.head_dim, bias=False)
        self.o_proj = nn.Linear(width, shape.hidden_size, bias=False)

    def forward(self, x: Tensor, rotation: Rotation, earlier: list[tuple[Tensor, Tensor]]) -> Tensor:
        """x: [B, N, inputs]; `earlier`: keys and values of each step so far, to which this step's are added."""
        B, N, _ = x.shape
        q, k, v = (
            projection(x).view(B, N, -1, self.shape.head_dim).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        group = self.shape.num_heads // self.shape.num_kv_heads
        q, k = rotation.rotate(q), rotation.rotate(k).repeat_interleave(group, 1)
        v = v.repeat_interleave(group, 1)
        earlier.append((k, v))
        if len(earlier) == 1:
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            out = unrolled_attention(q, earlier)
        projected: Tensor = self.o_proj(out.transpose(1, 2).flatten(2))
        return projected


def unrolled_attention(q: Tensor, steps: list[tuple[Tensor, Tensor]]) -> Tensor:
    """q: [B, heads, N, d]. Position p sees the first step's keys up to p, and of each later step only the key at p.
    Some positions at a time: the keys that none of them sees are left out."""
    N = q.shape[2]
    parts = [
        attention_from(q, steps, slice(begin, min(begin + ROWS_AT_ONCE, N))) for begin in range(0, N, ROWS_AT_ONCE)
    ]
    return torch.cat(parts, 2)


def attention_from(q: Tensor, steps: list[tuple[Tensor, Tensor]], rows: slice) -> Tensor:
    """The part of `unrolled_attention` at the positions `rows`."""
    q, seen = q[:, :, rows] * q.shape[-1] ** -0.5, rows.stop
    (first_k, first_v), later = steps[0], [(k[:, :, rows], v[:, :, rows]) for k, v in steps[1:]]
    hidden = torch.ones(q.shape[2], seen, dtype=torch.bool, device=q.device).triu(1 + rows.start)
    scores = (q @ first_k[:, :, :seen].transpose(-1, -2)).masked_fill(hidden, float("-inf"))
    own = torch.stack([(q * k).sum(-1) for k, _ in later], -1)
    weights = torch.cat((scores, own), -1).softmax(-1, dtype=torch.float32).to(q.dtype)
    out = weights[..., :seen] @ first_v[:, :, :seen]
    for i, (_, v) in enumerate(later):
        out = out + weights[..., seen + i, None] * v
    return out


class Rotation(NamedTuple):
    """cos, sin: [N, d], as `specserve.models.rope` has them."""

    cos: Tensor
    sin: Tensor

    def rotate(self, x: Tensor) -> Tensor:
        """x: [B, heads, N, d]."""
        size = self.cos.shape[-1]
        part = x[..., :size].float()
        part = (part * self.cos + part.roll(size // 2, -1) * self.sin).to(x.dtype)
        return part if size == x.shape[-1] else torch.cat((part, x[..., size:]), -1)


class Mlp(nn.Module):
    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Eagle3Layer(nn.Module):
    """A decoder layer whose queries, keys and values read [normed embedding ; normed hidden state]."""

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.input_layernorm = Norm(shape.hidden_size, shape.norm_eps)
        self.hidden_norm = Norm(shape.hidden_size, shape.norm_eps)
        self.self_attn = Attention(2 * shape.hidden_size, shape)
        self.post_attention_layernorm = Norm(shape.hidden_size, shape.norm_eps)
        self.mlp = Mlp(shape)

    def forward(self, embedded: Tensor, x: Tensor, rotation: Rotation, earlier: list[tuple[Tensor, Tensor]]) -> Tensor:
        both = torch.cat((self.input_layernorm(embedded), self.hidden_norm(x)), -1)
        x = x + self.self_attn(both, rotation, earlier)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class PlainLayer(nn.Module):
    """A Llama decoder layer; EAGLE-1's has no norm at its input."""

    def __init__(self, shape: HeadShape, *, input_norm: bool) -> None:
        super().__init__()
        self.input_layernorm = Norm(shape.hidden_size, shape.norm_eps) if input_norm else nn.Identity()
        self.self_attn = Attention(shape.hidden_size, shape)
        self.post_attention_layernorm = Norm(shape.hidden_size, shape.norm_eps)
        self.mlp = Mlp(shape)

    def forward(self, x: Tensor, rotation: Rotation, earlier: list[tuple[Tensor, Tensor]]) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rotation, earlier)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out
