"""The block that drafts within a Qwen3.5 checkpoint, made of random numbers: names and shapes of the public files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor

LAYER = "mtp.layers.0."


def shapes_of(raw: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """raw: config.json of the target."""
    H, inner, d = raw["hidden_size"], raw["intermediate_size"], raw["head_dim"]
    queries, keys = raw["num_attention_heads"] * d, raw["num_key_value_heads"] * d
    layer = {
        "self_attn.q_proj": (2 * queries, H),
        "self_attn.k_proj": (keys, H),
        "self_attn.v_proj": (keys, H),
        "self_attn.o_proj": (H, queries),
        "self_attn.q_norm": (d,),
        "self_attn.k_norm": (d,),
        "mlp.gate_proj": (inner, H),
        "mlp.up_proj": (inner, H),
        "mlp.down_proj": (H, inner),
        "input_layernorm": (H,),
        "post_attention_layernorm": (H,),
    }
    norms = dict.fromkeys(("mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.norm"), (H,))
    block = {"mtp.fc": (H, 2 * H), **norms} | {LAYER + name: shape for name, shape in layer.items()}
    return {f"{name}.weight": shape for name, shape in block.items()}


def random_block(raw: dict[str, Any], seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=generator) * (0.3 if len(shape) == 1 else shape[1] ** -0.5)
        for name, shape in shapes_of(raw).items()
    }
