"""Gated delta net (Yang et al., 2024), as Qwen3-Next and Qwen3.5 have it.

A causal convolution and SiLU over queries, keys and values; then for each value head, with a state S [dk, dv]:
S <- e^g S; S <- S + k (beta (v - S^T k))^T; o = S^T q. The output is normed and multiplied by SiLU of a gate. Letters:
H hidden size, G key heads, V value heads, dk and dv their sizes, C = 2 G dk + V dv channels, L taps.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from specserve.models.mixer import MixerConfig
from specserve.models.recurrence import TokenByToken

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from specserve.protocols.part import LinearMaps

EPS_OF_LENGTH = 1e-6


class GatedDeltaNetConfig(MixerConfig, frozen=True, kw_only=True):
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    taps: int
    norm_eps: float
    block: str = "linear_attn"
    """The path of its tensors within a layer."""

    @property
    def channels(self) -> int:
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    def input_maps(self, hidden: int) -> LinearMaps:
        sizes = {
            "in_proj_qkv": self.channels,
            "in_proj_b": self.value_heads,
            "in_proj_a": self.value_heads,
            "in_proj_z": self.value_heads * self.value_dim,
        }
        return {f"{self.block}.{name}": (size, hidden, False) for name, size in sizes.items()}

    def output_map(self, hidden: int) -> LinearMaps:
        return {f"{self.block}.out_proj": (hidden, self.value_heads * self.value_dim, False)}

    def tensors(self, hidden: int) -> dict[str, tuple[int, ...]]:
        return {
            f"{self.block}.conv1d.weight": (self.channels, 1, self.taps),
            f"{self.block}.dt_bias": (self.value_heads,),
            f"{self.block}.A_log": (self.value_heads,),
            f"{self.block}.norm.weight": (self.value_dim,),
        }

    def state_size(self, hidden: int) -> int:
        return self.value_heads * self.key_dim * self.value_dim + (self.taps - 1) * self.channels

    def trail_width(self, hidden: int) -> int:
        return self.channels + 2 * self.value_heads

    def update_size(self, hidden: int) -> int:
        """What is added to S along k."""
        return self.value_heads * self.value_dim

    def make(self, tensors: Mapping[str, Tensor]) -> GatedDeltaNet:
        return GatedDeltaNet(self, {name.removeprefix(f"{self.block}."): tensor for name, tensor in tensors.items()})


class GatedDeltaNet(TokenByToken):
    """A state is S of every value head, and the convolution's inputs of the last L - 1 tokens, the nearest first. All
    is computed in float32; what the convolution gives, beta and o are rounded to the model's dtype."""

    def __init__(self, config: GatedDeltaNetConfig, tensors: Mapping[str, Tensor]) -> None:
        self.config = config
        self.taps = tensors["conv1d.weight"].squeeze(1).T.flip(0).contiguous()
        """[L, C], the first for the token itself."""
        self.dt_bias, self.rate = tensors["dt_bias"], -tensors["A_log"].exp()
        self.norm = tensors["norm.weight"]
        self.shape = config.value_heads, config.key_dim, config.value_dim
        self.trail_width, self.state_size = config.trail_width(0), config.state_size(0)
        self.update_size = self.out_features = config.value_heads * config.value_dim

    def advance(self, state: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        config, count = self.config, math.prod(self.shape)
        S, window = state[:count].view(self.shape), state[count:].view(-1, config.channels)
        own, b, a = row.split_with_sizes((config.channels, config.value_heads, config.value_heads))
        q, k, v = self.convolved(own, window)
        decay = (self.rate * F.softplus(a.float() + self.dt_bias)).exp()
        beta = b.float().sigmoid().to(row.dtype).float()
        S = S * decay[:, None, None]
        delta = (v - (S * k[:, :, None]).sum(1)) * beta[:, None]
        S = S + k[:, :, None] * delta[:, None, :]
        window = torch.cat((own[None].float(), window))[: len(window)]
        return torch.cat((S.flatten(), window.flatten())), q

    def output(self, state: Tensor, query: Tensor, row: Tensor) -> Tensor:
        S, z = state[: math.prod(self.shape)].view(self.shape), row[self.trail_width :].float()
        out = (S * query[:, :, None]).sum(1).to(row.dtype).float()
        out = out * torch.rsqrt(out.pow(2).mean(-1, keepdim=True) + self.config.norm_eps)
        out = self.norm * out.to(row.dtype).float()
        return (out * F.silu(z.view(out.shape))).to(row.dtype).flatten()

    def convolved(self, own: Tensor, window: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """own: [C]; window: [L - 1, C] -> q and k [V, dk], of length 1 and q divided by the root of dk; v [V, dv]."""
        config = self.config
        total = own.float() * self.taps[0]
        for tap, before in zip(self.taps[1:], window, strict=True):
            total = total + before * tap
        mixed = F.silu(total).to(own.dtype).float()
        of_keys = config.key_heads * config.key_dim
        q, k, v = mixed.split_with_sizes((of_keys, of_keys, config.value_heads * config.value_dim))
        q, k = (unit(each.view(config.key_heads, -1)) for each in (q, k))
        q, k = (each.repeat_interleave(config.value_heads // config.key_heads, 0) for each in (q, k))
        return q / config.key_dim**0.5, k, v.view(config.value_heads, -1)


def unit(x: Tensor) -> Tensor:
    """x: [G, dk] -> of length 1 each."""
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + EPS_OF_LENGTH)
