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
        **mlp_shapes("mlp", H, inner),
        "input_layernorm": (H,),
        "post_attention_layernorm": (H,),
    }
    if "num_experts" in raw:
        layer = {name: shape for name, shape in layer.items() if not name.startswith("mlp.")} | expert_shapes(raw)
    norms = dict.fromkeys(("mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.norm"), (H,))
    block = {"mtp.fc": (H, 2 * H), **norms} | {LAYER + name: shape for name, shape in layer.items()}
    return {f"{name}.weight": shape for name, shape in block.items()}


def mlp_shapes(block: str, hidden: int, inner: int) -> dict[str, tuple[int, ...]]:
    inwards = {f"{block}.{name}": (inner, hidden) for name in ("gate_proj", "up_proj")}
    return inwards | {f"{block}.down_proj": (hidden, inner)}


def expert_shapes(raw: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Each expert by its own name."""
    H = raw["hidden_size"]
    maps = {"mlp.gate": (raw["num_experts"], H), "mlp.shared_expert_gate": (1, H)}
    maps |= mlp_shapes("mlp.shared_expert", H, raw["shared_expert_intermediate_size"])
    for expert in range(raw["num_experts"]):
        maps |= mlp_shapes(f"mlp.experts.{expert}", H, raw["moe_intermediate_size"])
    return maps


def with_stacks(block: dict[str, Tensor], count: int) -> dict[str, Tensor]:
    """The same block with its `count` experts as two stacks of matrices."""
    experts = f"{LAYER}mlp.experts."

    def stack(name: str) -> Tensor:
        return torch.stack([block[f"{experts}{expert}.{name}.weight"] for expert in range(count)])

    others = {name: tensor for name, tensor in block.items() if not name.startswith(experts)}
    gate_up = torch.cat([stack("gate_proj"), stack("up_proj")], 1)
    return others | {f"{experts}gate_up_proj": gate_up, f"{experts}down_proj": stack("down_proj")}


def random_block(raw: dict[str, Any], seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=generator) * (0.3 if len(shape) == 1 else shape[1] ** -0.5)
        for name, shape in shapes_of(raw).items()
    }
