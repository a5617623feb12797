"""Gemma 4 as GGUF, as llama.cpp's converter writes it: the heads of layers without a window under the plain keys, a
number of key heads and a width for each layer, and which numbers of a head rotate as factors of frequencies."""

from __future__ import annotations

from typing import Any

import numpy as np

from specserve.models.families import family_named

VECTORS = {
    "layer_scalar": "layer_output_scale.weight",
    "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
}
"""Within a layer: names without `.weight`."""
SLIDING, FULL = "sliding_attention", "full_attention"
STILL = 1e30


def known(config: dict[str, Any]) -> dict[str, Any]:
    """With what the family takes where the file says nothing."""
    family = family_named(config["model_type"])
    found = family.renamed({**family.absent, **config})
    return {**found, "layer_types": family.kinds(found, found["num_hidden_layers"], "config.json")}


def keys_of(config: dict[str, Any]) -> dict[str, Any]:
    found = known(config)
    layers, own = found["num_hidden_layers"], found["num_hidden_layers"] - found["num_kv_shared_layers"]
    windowed, inner = [kind == SLIDING for kind in found["layer_types"]], found["intermediate_size"]
    whole, small = found["global_head_dim"], found["head_dim"]
    rotations = found["rope_parameters"]
    keys = {
        "attention.key_length": whole,
        "attention.value_length": whole,
        "attention.key_length_swa": small,
        "attention.value_length_swa": small,
        "attention.shared_kv_layers": found["num_kv_shared_layers"],
        "attention.sliding_window": found["sliding_window"],
        "attention.sliding_window_pattern": windowed,
        "embedding_length_per_layer_input": found["hidden_size_per_layer_input"],
        "rope.dimension_count": whole,
        "rope.dimension_count_swa": small,
        "rope.freq_base": float(rotations[FULL]["rope_theta"]),
        "rope.freq_base_swa": float(rotations[SLIDING]["rope_theta"]),
    }
    if found.get("use_double_wide_mlp"):
        keys["feed_forward_length"] = [inner * (1 if layer < own else 2) for layer in range(layers)]
    if found.get("num_global_key_value_heads") is not None:
        heads = found["num_key_value_heads"], found["num_global_key_value_heads"]
        keys["attention.head_count_kv"] = [heads[0] if each else heads[1] for each in windowed]
    if found.get("enable_moe_block"):
        keys["expert_used_count"] = found["top_k_experts"]
    return keys


def factors(config: dict[str, Any]) -> np.ndarray:
    found = known(config)
    half, part = found["global_head_dim"] // 2, found["rope_parameters"][FULL]["partial_rotary_factor"]
    moving = int(found["global_head_dim"] * part / 2)
    return np.array([1.0] * moving + [STILL] * (half - moving), np.float32)
