"""Rotary position embedding: tables of cos and sin for every position (Su et al., 2021).

Owns the scaling types: linear, dynamic NTK, llama3, YaRN (Peng et al., 2023), LongRoPE (Ding et al., 2024), and
`proportional`, which rotates some pairs of a whole head (transformers' name). A rotation is fixed once, from the
context length that is served: one that followed the length of the sequence would change keys that are already cached,
so chunks and prefix reuse would change tokens.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.models.config import ModelConfig


class RotaryTable(NamedTuple):
    """cos, sin: [max_len, 1, rotary_dim] float32; sin is signed for out = x*cos + roll(x, rotary_dim/2)*sin."""

    cos: Tensor
    sin: Tensor

    def on(self, device: torch.device) -> RotaryTable:
        return RotaryTable(self.cos.to(device), self.sin.to(device))


def supported_length(config: ModelConfig) -> int:
    """The longest context that the rotation was scaled for."""
    rope, longest = config.rope, config.max_position_embeddings
    if rope.rope_type in ("linear", "dynamic"):
        return int(longest * max(rope.factor or 1.0, 1.0))
    if rope.rope_type == "yarn":
        return max(longest, int(_original(config) * _factor(config)))
    return longest


def rotary_table(config: ModelConfig, max_model_len: int) -> RotaryTable:
    """The tables for positions below `max_model_len`, in float32 for every dtype of the model."""
    frequencies, scale = inverse_frequencies(config, max_model_len)
    angles = torch.outer(torch.arange(max_model_len, dtype=torch.float32), frequencies)
    cos, sin = angles.cos() * scale, angles.sin() * scale
    # Rotate-half form: to x*cos the first half adds the second half times -sin, the second half the first times sin.
    return RotaryTable(torch.cat((cos, cos), -1).unsqueeze(1), torch.cat((-sin, sin), -1).unsqueeze(1))


def inverse_frequencies(config: ModelConfig, max_model_len: int) -> tuple[Tensor, float]:
    """([rotary_dim / 2] float32, what cos and sin are multiplied by)."""
    rope, dim = config.rope, config.rotary_dim
    exponents = torch.arange(0, dim, 2, dtype=torch.float32) / dim
    plain = 1.0 / rope.rope_theta**exponents
    match rope.rope_type:
        case "linear":
            return plain / (rope.factor or 1.0), 1.0
        case "dynamic":
            return 1.0 / _dynamic_base(config, max_model_len) ** exponents, 1.0
        case "llama3":
            return _llama3(config, plain), 1.0
        case "yarn":
            return _yarn(config, rope.rope_theta**exponents)
        case "longrope":
            return _longrope(config, max_model_len, exponents)
        case "proportional":
            still = int(config.head_dim * rope.partial_rotary_factor) // 2
            return torch.cat((plain[:still], torch.zeros_like(plain[still:]))) / (rope.factor or 1.0), 1.0
    return plain, 1.0


def _original(config: ModelConfig) -> int:
    """The context length of pretraining."""
    return config.rope.original_max_position_embeddings or config.max_position_embeddings


def _factor(config: ModelConfig) -> float:
    return config.rope.factor or config.max_position_embeddings / _original(config)


def _dynamic_base(config: ModelConfig, max_model_len: int) -> float:
    longest, factor = config.max_position_embeddings, config.rope.factor or 1.0
    stretch = factor * max(max_model_len, longest) / longest - (factor - 1)
    return float(config.rope.rope_theta * stretch ** (config.rotary_dim / (config.rotary_dim - 2)))


def _llama3(config: ModelConfig, plain: Tensor) -> Tensor:
    """Long waves are divided by the factor, short ones kept, those between interpolated."""
    rope, factor = config.rope, config.rope.factor or 1.0
    low, high = rope.low_freq_factor, rope.high_freq_factor
    waves_per_context = _original(config) * plain / (2 * math.pi)
    smooth = ((waves_per_context - low) / (high - low)).clamp(0.0, 1.0)
    return (1 - smooth) * plain / factor + smooth * plain


def _yarn(config: ModelConfig, waves: Tensor) -> tuple[Tensor, float]:
    """waves: theta**exponent. Dimensions that turn often extrapolate, those that turn rarely interpolate."""
    rope, dim, factor = config.rope, config.rotary_dim, _factor(config)

    def dimension(turns: float) -> float:
        """The dimension that makes `turns` full turns within the pretraining context."""
        return dim * math.log(_original(config) / (turns * 2 * math.pi)) / (2 * math.log(rope.rope_theta))

    low, high = dimension(rope.beta_fast or 32.0), dimension(rope.beta_slow or 1.0)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    span = high - low or 0.001  # a ramp of width 0 is a step
    ramp = ((torch.arange(dim // 2, dtype=torch.float32) - low) / span).clamp(0, 1)
    return ramp / (factor * waves) + (1 - ramp) / waves, _yarn_scale(config, factor)


def _yarn_scale(config: ModelConfig, factor: float) -> float:
    rope = config.rope
    if rope.attention_factor is not None:
        return rope.attention_factor

    def scale(mscale: float) -> float:
        return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0

    if rope.mscale and rope.mscale_all_dim:
        return scale(rope.mscale) / scale(rope.mscale_all_dim)
    return scale(1.0)


def _longrope(config: ModelConfig, max_model_len: int, exponents: Tensor) -> tuple[Tensor, float]:
    """The long factors when the served context exceeds the pretraining one, the short factors otherwise."""
    rope, original, factor = config.rope, _original(config), _factor(config)
    name = "long_factor" if max_model_len > original else "short_factor"
    stretch: tuple[float, ...] = getattr(rope, name)
    if len(stretch) != len(exponents):
        raise ModelError(f"config.json: {name} must have {len(exponents)} numbers; got {len(stretch)}.")
    scale = rope.attention_factor
    if scale is None:
        scale = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    return 1.0 / (torch.tensor(stretch, dtype=torch.float32) * rope.rope_theta**exponents), scale
