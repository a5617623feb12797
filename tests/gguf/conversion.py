"""Models in Hugging Face format as GGUF files, as llama.cpp's converter writes them: its names, its order of rows, its
keys. Tensors are written in 32 bits, or as a type of ggml."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import gemma4_conversion
import numpy as np
import qwen35_conversion
from expert_stacks import stacked
from safetensors.numpy import load_file

import gguf
from specserve.models.families import family_named

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TYPES = {name: getattr(gguf.GGMLQuantizationType, name) for name in ("F32", "F16", "Q8_0", "Q4_0", "Q4_1", "Q5_0")}
PERMUTED = ("llama", "granite", "smollm3")
"""Whose rows of queries and keys are brought into another order (llama.cpp's `undo_permute`)."""
OFFSET = ("gemma2", "gemma3")
"""Whose norms have one added to them."""
ARCHITECTURES = {
    "llama": "llama",
    "mistral": "llama",
    "mixtral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe",
    "gemma2": "gemma2",
    "gemma3_text": "gemma3",
    "phi3": "phi3",
    "granite": "granite",
    "granitemoe": "granitemoe",
    "smollm3": "smollm3",
    "olmo2": "olmo2",
    "olmoe": "olmoe",
    "gpt_oss": "gpt-oss",
    "ministral3": "mistral3",
    "granitemoeshared": "granitemoe",
    "qwen2_moe": "qwen2moe",
    "lfm2": "lfm2",
    "lfm2_moe": "lfm2moe",
    "qwen3_5_text": "qwen35",
    "qwen3_5_moe_text": "qwen35moe",
    "gemma4_text": "gemma4",
    "glm4_moe": "glm4moe",
}
"""By `model_type`."""
KEYS = {
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
    "sliding_window": "attention.sliding_window",
    "num_experts": "expert_count",
    "num_local_experts": "expert_count",
    "n_routed_experts": "expert_count",
    "n_shared_experts": "expert_shared_count",
    "first_k_dense_replace": "leading_dense_block_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "shared_intermediate_size": "expert_shared_feed_forward_length",
    "final_logit_softcapping": "final_logit_softcapping",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "embedding_multiplier": "embedding_scale",
    "attention_multiplier": "attention.scale",
    "residual_multiplier": "residual_scale",
    "logits_scaling": "logit_scale",
}


class Named(NamedTuple):
    name: str
    numbers: np.ndarray


def convert(
    directory: Path,
    file: Path,
    kind: str = "F32",
    extra: dict[str, Any] | None = None,
    factors: dict[str, Any] | None = None,
) -> Path:
    """The model in `directory` as `file`. extra: keys without the architecture's name; factors: of frequencies, by the
    tensor's name."""
    config = json.loads((directory / "config.json").read_text())
    name = ARCHITECTURES[config["model_type"]]
    writer = gguf.GGUFWriter(file, name)
    for key, value in (keys_of(config) | (extra or {})).items():
        add(writer, f"{name}.{key}", value)
    write_tokenizer(writer, directory, config)
    tensors = load_file(directory / "model.safetensors")
    for stem, numbers in (factors or {}).items():
        writer.add_tensor(f"{stem}.weight", np.array(numbers, np.float32))
    if name == "gemma4":
        writer.add_tensor("rope_freqs.weight", gemma4_conversion.factors(config))
    for each in converted(tensors, config, name):
        write(writer, each, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def keys_of(config: dict[str, Any]) -> dict[str, Any]:
    found = {theirs: config[ours] for ours, theirs in KEYS.items() if config.get(ours) is not None}
    heads, head_dim = config["num_attention_heads"], config.get("head_dim")
    found["attention.head_count_kv"] = config.get("num_key_value_heads") or heads
    head_dim = head_dim or config["hidden_size"] // heads
    found |= {"attention.key_length": head_dim, "attention.value_length": head_dim}
    found["rope.dimension_count"] = int(head_dim * config.get("partial_rotary_factor", 1.0))
    if config["model_type"] == "gpt_oss":
        found["expert_feed_forward_length"] = config["intermediate_size"]
    if config["model_type"].startswith("lfm2"):
        found |= of_convolutions(config, found["attention.head_count_kv"])
    if config["model_type"].startswith("qwen3_5"):
        found |= qwen35_conversion.keys_of(config)
    if config["model_type"] == "gemma4_text":
        found |= gemma4_conversion.keys_of(config)
    if config["model_type"] == "glm4_moe":
        found |= of_glm(config)
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind in ("linear", "yarn"):
        found |= {"rope.scaling.type": kind, "rope.scaling.factor": float(scaling["factor"])}
    if "mscale_all_dim" in scaling:
        found["rope.scaling.yarn_log_multiplier"] = float(scaling["mscale_all_dim"])
    if "original_max_position_embeddings" in scaling:
        found["rope.scaling.original_context_length"] = scaling["original_max_position_embeddings"]
    return found


def of_glm(config: dict[str, Any]) -> dict[str, Any]:
    """Sigmoids are the second way to choose experts."""
    found = {"expert_gating_func": 2, "block_count": layers_of(config)}
    more = {
        "routed_scaling_factor": "expert_weights_scale",
        "norm_topk_prob": "expert_weights_norm",
        "n_group": "expert_group_count",
        "topk_group": "expert_group_used_count",
        "num_nextn_predict_layers": "nextn_predict_layers",
    }
    return found | {theirs: config[ours] for ours, theirs in more.items() if config.get(ours) is not None}


def layers_of(config: dict[str, Any]) -> int:
    """Of the file: those of the block that drafts follow the model's."""
    layers: int = config["num_hidden_layers"] + (config.get("num_nextn_predict_layers") or 0)
    return layers


def of_convolutions(config: dict[str, Any], kv_heads: int) -> dict[str, Any]:
    """The width of the MLP is the one that the tensors have; sigmoids are the second way to choose experts."""
    family = family_named(config["model_type"])
    known = {**family.absent, **config}
    kinds = family.kinds(known, config["num_hidden_layers"], "config.json")
    found: dict[str, Any] = {"attention.head_count_kv": [0 if kind == "conv" else kv_heads for kind in kinds]}
    found["shortconv.l_cache"] = known["conv_L_cache"]
    if config["model_type"] == "lfm2_moe":
        return found | {"expert_gating_func": 2, "leading_dense_block_count": known["num_dense_layers"]}
    return found | {"feed_forward_length": family.renamed(known)["intermediate_size"]}


def add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case _:
            writer.add_array(key, value)


def write_tokenizer(writer: gguf.GGUFWriter, directory: Path, config: dict[str, Any]) -> None:
    """The vocabulary alone: what becomes of it is tested elsewhere."""
    tokenizer = json.loads((directory / "tokenizer.json").read_text())
    by_id = {index: token for token, index in tokenizer["model"]["vocab"].items()}
    by_id |= {each["id"]: each["content"] for each in tokenizer["added_tokens"]}
    control = {each["id"] for each in tokenizer["added_tokens"] if each["special"]}
    ids = range(config["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([by_id.get(index, f"[PAD{index}]") for index in ids])
    writer.add_token_types([3 if index in control else 1 if index in by_id else 5 for index in ids])
    merges = tokenizer["model"].get("merges") or []
    pairs = [merge if isinstance(merge, str) else " ".join(merge) for merge in merges]
    if pairs:
        writer.add_token_merges(pairs)
    writer.add_eos_token_id(config["eos_token_id"])


def write(writer: gguf.GGUFWriter, each: Named, kind: str) -> None:
    kept = any(part in each.name for part in ("ffn_gate_inp", "shortconv.conv", "ssm_conv1d"))
    plain = each.numbers.ndim == 1 or each.name.endswith(".bias") or kept
    if kind == "F32" or plain:
        writer.add_tensor(each.name, np.ascontiguousarray(each.numbers, np.float32))
        return
    data = gguf.quants.quantize(np.ascontiguousarray(each.numbers, np.float32), TYPES[kind])
    writer.add_tensor(each.name, data, raw_dtype=TYPES[kind])


def converted(tensors: dict[str, np.ndarray], config: dict[str, Any], architecture: str) -> Iterator[Named]:
    if architecture.startswith("qwen35"):
        yield from map(Named, *zip(*qwen35_conversion.converted(tensors, config).items(), strict=True))
        return
    names = gguf.get_tensor_name_map(arch_of(architecture), layers_of(config))
    heads = config["num_attention_heads"], config.get("num_key_value_heads") or config["num_attention_heads"]
    for name, numbers in stacked(tensors, config).items():
        prefix, inner = name.split(".")[2:3], name.split(".", 3)[-1]
        if architecture == "gemma4" and inner in gemma4_conversion.VECTORS:
            yield Named(f"blk.{prefix[0]}.{gemma4_conversion.VECTORS[inner]}", numbers)
            continue
        stem, _, kind = name.rpartition(".")
        if kind == "e_score_correction_bias":
            stem, kind = f"{stem}.e_score_correction", "bias"
        if kind not in ("weight", "bias"):
            stem, kind = name, "bias" if kind == "expert_bias" else "weight"
        if stem.endswith("conv.conv") and kind == "weight":
            numbers = numbers.squeeze(1)
        theirs = names.get_name(stem)
        assert theirs is not None, f"llama.cpp has no name for {stem}"
        if architecture.removesuffix("moe") in PERMUTED and stem.endswith(("q_proj", "k_proj")):
            numbers = neighbours(numbers, heads[stem.endswith("k_proj")])
        if architecture in OFFSET and stem.endswith("norm"):
            numbers = numbers + np.float32(1)
        yield Named(f"{theirs}.{kind}", numbers)


def arch_of(name: str) -> gguf.MODEL_ARCH:
    return next(arch for arch, each in gguf.MODEL_ARCH_NAMES.items() if each == name)


def neighbours(numbers: np.ndarray, heads: int) -> np.ndarray:
    """In a head, the rows i and i + d / 2 become 2i and 2i + 1."""
    return numbers.reshape(heads, 2, -1, *numbers.shape[1:]).swapaxes(1, 2).reshape(numbers.shape)
