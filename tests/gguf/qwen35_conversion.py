"""Qwen 3.5 as GGUF, as llama.cpp's converter writes it: value heads in turns over the key heads, rates of decay in
place of their logarithms, norms with one added, and the block that drafts as a further layer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from specserve.models.families import family_named

if TYPE_CHECKING:
    from collections.abc import Callable

    Numbers = np.ndarray

NAMES = {
    "linear_attn.in_proj_qkv.weight": "attn_qkv.weight",
    "linear_attn.in_proj_z.weight": "attn_gate.weight",
    "linear_attn.in_proj_b.weight": "ssm_beta.weight",
    "linear_attn.in_proj_a.weight": "ssm_alpha.weight",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "linear_attn.conv1d.weight": "ssm_conv1d.weight",
    "linear_attn.norm.weight": "ssm_norm.weight",
    "linear_attn.out_proj.weight": "ssm_out.weight",
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.o_proj.bias": "attn_output.bias",
    "mlp.gate.weight": "ffn_gate_inp.weight",
    "mlp.shared_expert_gate.weight": "ffn_gate_inp_shexp.weight",
    "mlp.experts.gate_proj": "ffn_gate_exps.weight",
    "mlp.experts.up_proj": "ffn_up_exps.weight",
    "mlp.experts.down_proj": "ffn_down_exps.weight",
} | {
    f"{theirs}_proj.{kind}": f"{ours}.{kind}"
    for kind in ("weight", "bias")
    for theirs, ours in {
        **{f"self_attn.{part}": f"attn_{part}" for part in "qkv"},
        **{f"mlp.{part}": f"ffn_{part}" for part in ("gate", "up", "down")},
        **{f"mlp.shared_expert.{part}": f"ffn_{part}_shexp" for part in ("gate", "up", "down")},
    }.items()
}
"""Within a layer."""
TOP = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
BLOCK = {
    "mtp.fc": "nextn.eh_proj",
    "mtp.pre_fc_norm_embedding": "nextn.enorm",
    "mtp.pre_fc_norm_hidden": "nextn.hnorm",
    "mtp.norm": "nextn.shared_head_norm",
}
LAYER = re.compile(r"(model|mtp)\.layers\.(\d+)\.(.+)")


def known(config: dict[str, Any]) -> dict[str, Any]:
    """With what Hugging Face's class has where the file says nothing."""
    return {**family_named(config["model_type"]).absent, **config}


def keys_of(config: dict[str, Any]) -> dict[str, Any]:
    raw = known(config)
    drafting = raw.get("mtp_num_hidden_layers") or 0
    num_layers = raw["num_hidden_layers"]
    rotation = raw.get("rope_parameters") or raw
    found: dict[str, Any] = {
        "block_count": num_layers + drafting,
        "ssm.conv_kernel": raw["linear_conv_kernel_dim"],
        "ssm.state_size": raw["linear_key_head_dim"],
        "ssm.group_count": raw["linear_num_key_heads"],
        "ssm.time_step_rank": raw["linear_num_value_heads"],
        "ssm.inner_size": raw["linear_value_head_dim"] * raw["linear_num_value_heads"],
        "full_attention_interval": raw["full_attention_interval"],
        "rope.dimension_count": int(raw["head_dim"] * rotation.get("partial_rotary_factor", 0.25)),
        "rope.dimension_sections": [11, 11, 10, 0],
    }
    if drafting:
        found["nextn_predict_layers"] = drafting
    if kinds := raw.get("layer_types"):
        found["attention.recurrent_layers"] = [kind == "linear_attention" for kind in kinds] + [False] * drafting
    return found


def converted(tensors: dict[str, Numbers], config: dict[str, Any]) -> dict[str, Numbers]:
    """By llama.cpp's names."""
    return {
        named(name, config["num_hidden_layers"]): changed(name, numbers, known(config))
        for name, numbers in halved(tensors).items()
    }


def halved(tensors: dict[str, Numbers]) -> dict[str, Numbers]:
    """Stacks of experts' gates and of their ups, which lie below each other."""
    found = {}
    for name, numbers in tensors.items():
        if name.endswith("experts.gate_up_proj"):
            found[name.replace("gate_up", "gate")], found[name.replace("gate_up", "up")] = np.split(numbers, 2, axis=1)
        else:
            found[name] = numbers
    return found


def named(name: str, num_layers: int) -> str:
    if match := LAYER.fullmatch(name):
        return f"blk.{int(match[2]) + num_layers * (match[1] == 'mtp')}.{NAMES[match[3]]}"
    stem, _, kind = name.rpartition(".")
    return f"blk.{num_layers}.{BLOCK[stem]}.{kind}" if stem in BLOCK else TOP[name]


def changed(name: str, numbers: Numbers, raw: dict[str, Any]) -> Numbers:
    if "linear_attn." in name:
        return in_turns(name.rpartition("linear_attn.")[2], numbers, raw)
    return numbers + np.float32(1) if name.endswith("norm.weight") or "pre_fc_norm" in name else numbers


def in_turns(name: str, numbers: Numbers, raw: dict[str, Any]) -> Numbers:
    """A gated delta net's tensor: first the first value head of every key head, then the second ones."""
    key_heads, heads = raw["linear_num_key_heads"], raw["linear_num_value_heads"]

    def turned(some: Numbers) -> Numbers:
        """Of the first dimension."""
        return some.reshape(key_heads, heads // key_heads, -1, *some.shape[1:]).swapaxes(0, 1).reshape(some.shape)

    def values_turned(some: Numbers) -> Numbers:
        queries_and_keys = 2 * key_heads * raw["linear_key_head_dim"]
        return np.concatenate((some[:queries_and_keys], turned(some[queries_and_keys:])))

    changes: dict[str, Callable[[Numbers], Numbers]] = {
        "in_proj_qkv.weight": values_turned,
        "conv1d.weight": lambda some: values_turned(some.squeeze(1)),
        "A_log": lambda some: -np.exp(turned(some)),
        "out_proj.weight": lambda some: turned(some.T).T,
        "norm.weight": lambda some: some,
    }
    return changes.get(name, turned)(numbers)
