"""Draws rotary embeddings of every kind; sliding windows, convolutions and recurrent layers of every pattern."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random

ROPES = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")


KINDS = ("sliding_attention", "full_attention")
WITHOUT_WINDOWS = ("llama", "granite", "granitemoe", "granitemoeshared", "olmo2", "olmoe")
RECURRENT = ("qwen3_5_text", "qwen3_5_moe_text")
OF_TWO_KINDS = ("gemma2", "gemma3_text", "gpt_oss", "ministral", "olmo3")


def draw_windows(rng: random.Random, family: str, num_layers: int) -> dict[str, Any]:
    """Keys of config.json for windows, and for layers that rotate nothing."""
    window = rng.choice((1, 2, 5, 16, 17, 33, 64, 100, 130))
    kinds = {"layer_types": [rng.choice(KINDS) for _ in range(num_layers)]}
    if family in WITHOUT_WINDOWS:
        return {}
    if family.startswith("lfm"):
        return draw_convolutions(rng, family, num_layers)
    if family in RECURRENT:
        return draw_recurrence(rng, num_layers)
    if family in ("mistral", "ministral3", "mixtral", "phi3"):
        return {"sliding_window": rng.choice((window, window, None))}
    if family in OF_TWO_KINDS:
        return {"sliding_window": window, **kinds}
    config: dict[str, Any] = {}
    if family == "smollm3":
        config["no_rope_layers"] = [rng.randrange(2) for _ in range(num_layers)]
    if rng.random() < 0.5:
        return config
    config |= {"use_sliding_window": True, "sliding_window": window}
    if family != "smollm3" and rng.random() < 0.5:
        return config | {"max_window_layers": rng.randrange(num_layers + 1)}
    return config | kinds


def draw_convolutions(rng: random.Random, family: str, num_layers: int) -> dict[str, Any]:
    """Keys of config.json for layers with short convolutions, beside at least one with attention."""
    full = {rng.randrange(num_layers), *(layer for layer in range(num_layers) if rng.random() < 0.3)}
    config = {"conv_L_cache": rng.choice((1, 2, 3, 3, 7)), "conv_bias": rng.random() < 0.3, "norm_eps": 1e-5}
    if family == "lfm3":
        types = [rng.choice(KINDS) if layer in full else "conv" for layer in range(num_layers)]
        gated = {"use_attention_gate": rng.random() < 0.8, "use_sandwich_norm": rng.random() < 0.8}
        return config | gated | {"layer_types": types, "sliding_window": rng.choice((1, 5, 17, 64))}
    if family == "lfm2":
        return config | {"full_attn_idxs": sorted(full), "block_multiple_of": rng.choice((1, 16))}
    return config | {
        "layer_types": ["full_attention" if layer in full else "conv" for layer in range(num_layers)],
        "num_dense_layers": rng.randrange(num_layers),
        "use_expert_bias": rng.random() < 0.8,
        "norm_topk_prob": rng.random() < 0.8,
        "routed_scaling_factor": rng.choice((1.0, 1.0, 2.5)),
    }


def draw_recurrence(rng: random.Random, num_layers: int) -> dict[str, Any]:
    """Keys of config.json for layers with gated delta nets, beside at least one with attention."""
    full = {rng.randrange(num_layers), *(layer for layer in range(num_layers) if rng.random() < 0.3)}
    heads = rng.choice((1, 1, 2, 3))
    return {
        "layer_types": ["full_attention" if layer in full else "linear_attention" for layer in range(num_layers)],
        "linear_num_key_heads": heads,
        "linear_num_value_heads": heads * rng.choice((1, 2, 3)),
        "linear_key_head_dim": rng.choice((4, 8, 16, 24)),
        "linear_value_head_dim": rng.choice((4, 8, 16, 24)),
        "linear_conv_kernel_dim": rng.choice((1, 2, 4)),
    }


def draw_rope(rng: random.Random, family: str, head_dim: int, longest: int) -> dict[str, Any]:
    config: dict[str, Any] = {"rope_theta": rng.choice((100.0, 10000.0, 500000.0))}
    if family == "lfm3":
        full = {"rope_type": "proportional", "partial_rotary_factor": 1.0 if head_dim % 4 else 0.5, **config}
        return {"rope_parameters": {"full_attention": full, "sliding_attention": {"rope_theta": 100.0}}}
    kind = rng.choice(("default", *ROPES))
    if kind == "default" and rng.random() < 0.2 and (family not in ("phi3", "gpt_oss") or head_dim % 4 == 0):
        config["partial_rotary_factor"] = 0.5  # others do without it
    if family in RECURRENT:
        parts = [part for part in (0.25, 0.5) if head_dim * part % 2 == 0]
        config["partial_rotary_factor"] = rng.choice((*parts, 1.0)) if kind == "default" else 1.0
    if kind != "default" and head_dim > 2:
        table = {"rope_type": kind, "factor": rng.choice((1.5, 2.0, 4.0))}
        config["rope_scaling"] = table | more_of(kind, head_dim // 2, longest)
    if family == "ministral3":  # queries are scaled from a length on that this table has
        table = config.get("rope_scaling", {"rope_type": "default"})
        length = {"original_max_position_embeddings": longest // 8}
        config["rope_scaling"] = {**length, **table, "llama_4_scaling_beta": rng.choice((0.1, 0.7))}
    return config


def more_of(kind: str, num_frequencies: int, longest: int) -> dict[str, Any]:
    """What the kind needs beside its factor."""
    original = {"original_max_position_embeddings": longest // 2}
    if kind == "llama3":
        return {"low_freq_factor": 1.0, "high_freq_factor": 4.0, **original}
    if kind == "yarn":
        return original
    if kind == "longrope":
        return {
            "short_factor": [1.0 + 0.1 * i for i in range(num_frequencies)],
            "long_factor": [1.5 + 0.3 * i for i in range(num_frequencies)],
            **original,
        }
    return {}
