"""Small random checkpoints in Hugging Face format, written in a second and good enough to test an engine on.

Owns the toy's sizes and its tokenizer; needs neither transformers nor the network. The weights are random but
scaled so that greedy text does not stick to one token, and no bias or norm has its neutral value, so that code which
forgets one is found out.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file

from specserve.models.arrange import by_tensor
from specserve.models.families import family_named
from specserve.models.read_config import parse_config
from specserve.models.tensor_names import expected_shapes
from specserve_workbench.testing.toy_tokenizer import EOS_ID, VOCAB_SIZE, write_tokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

    from specserve.models.family import ModelFamily, StoredAs

DEFAULTS: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 128,
    "intermediate_size": 320,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "rope_theta": 10000.0,
    "bos_token_id": None,
    "eos_token_id": EOS_ID,
}

FAMILIES: dict[str, dict[str, Any]] = {
    "mha": {"num_key_value_heads": 4, "hidden_size": 64, "intermediate_size": 96},
    "mha-window": {
        "architecture": "mistral",
        "num_attention_heads": 2,
        "head_dim": 128,
        "hidden_size": 65,
        "intermediate_size": 13,
        "vocab_size": 326,
        "sliding_window": 24,
    },
    "one-head": {
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "head_dim": 48,
        "hidden_size": 33,
        "intermediate_size": 13,
        "vocab_size": 321,
    },
    "mqa": {
        "architecture": "qwen2",
        "num_attention_heads": 5,
        "num_key_value_heads": 1,
        "head_dim": 20,
        "hidden_size": 50,
        "intermediate_size": 50,
        "vocab_size": 331,
    },
    "mqa-many-heads": {
        "num_attention_heads": 18,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "hidden_size": 144,
        "intermediate_size": 50,
        "vocab_size": 323,
    },
    "narrow-heads": {
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 6,
        "hidden_size": 96,
        "intermediate_size": 16,
        "vocab_size": 333,
    },
    "groups-of-three": {
        "architecture": "qwen3",
        "num_attention_heads": 6,
        "head_dim": 80,
        "hidden_size": 65,
        "intermediate_size": 13,
        "vocab_size": 333,
        "tie_word_embeddings": True,
    },
}
"""What `write_checkpoint` takes for models unlike its default: one query head per key head, one key head for all, and
heads, widths and vocabularies that are no multiple of a vector or a matrix tile."""


def write_checkpoint(
    path: Path,
    *,
    architecture: str | ModelFamily = "llama",
    seed: int = 0,
    dtype: str = "float32",
    shards: int = 1,
    **config_overrides: Any,
) -> Path:
    """Write a random model of `architecture` (llama, mistral, qwen2, qwen3, or a family) into directory `path`; returns
    `path`.

    `config_overrides` are keys of config.json; None is written as null.
    """
    family = family_named(architecture) if isinstance(architecture, str) else architecture
    raw = DEFAULTS | {"architectures": [family.architectures[0]], "model_type": family.name, "torch_dtype": dtype}
    raw |= {**family.toy, **config_overrides}
    path.mkdir(parents=True, exist_ok=True)
    _write_json(path / "config.json", raw)
    _write_json(path / "generation_config.json", {"eos_token_id": [EOS_ID]})
    config = parse_config(raw, {}, where=str(path / "config.json"), families=(family,))
    shapes = expected_shapes(config)
    generator = torch.Generator().manual_seed(seed)
    kind: torch.dtype = getattr(torch, dtype)
    tensors = {name: _random(name, shape, generator).to(kind) for name, shape in shapes.items()}
    if "lm_head.weight" not in shapes:
        # A tied head scores the embedding just read highest, and text sticks to one token, unless it is small.
        tensors["model.embed_tokens.weight"] *= 2 / math.sqrt(raw["hidden_size"])
    _save(path, as_stored(tensors, family.stored_as(config)), shards)
    write_tokenizer(path)
    return path


def as_stored(tensors: dict[str, Tensor], stored_as: Mapping[str, StoredAs]) -> dict[str, Tensor]:
    """Under the names, and in the larger matrices, that the family's checkpoints have."""
    stored = dict(tensors)
    for name, parts in by_tensor(stored_as).items():
        pieces = {ours: stored.pop(ours) for ours in parts if ours in stored}
        if not pieces:
            continue
        matrices: dict[int | None, Tensor] = {}
        for ours, piece in pieces.items():
            of_stack = parts[ours].of_stack
            if of_stack not in matrices:
                count = sum(len(other) for name, other in pieces.items() if parts[name].of_stack == of_stack)
                matrices[of_stack] = piece.new_empty((count, *piece.shape[1:]))
            matrices[of_stack][parts[ours].rows] = piece
        if None in matrices:
            stored[name] = matrices[None]
        else:
            stack = torch.stack([matrices[index] for index in sorted(index or 0 for index in matrices)])
            stored[name] = stack.mT.contiguous() if next(iter(parts.values())).transposed else stack
    return stored


def _random(name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    noise = torch.randn(shape, generator=generator)
    # Queries and keys are twice as long as neutral, so that attention looks at a few keys and not at all alike.
    scale = 2.0 if any(part in name for part in ("q_proj", "k_proj", "q_norm", "k_norm")) else 1.0
    if name.endswith(("norm.weight", "layer_scalar", "_layernorm_1.weight", "_layernorm_2.weight", "scale")):
        return scale * (1.0 + 0.2 * noise)
    if name.endswith("bias"):
        return 0.2 * noise
    if name.endswith("sinks"):
        return 2.0 * noise
    if "embed_tokens" in name or len(shape) == 1:
        return noise
    return noise * (scale / math.sqrt(shape[1]))  # variance 1 in, variance about 1 out


def _save(path: Path, tensors: dict[str, Tensor], shards: int) -> None:
    if shards == 1:
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
        return
    names = list(tensors)
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = {name: tensors[name] for name in names[shard::shards]}
        save_file(part, path / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    _write_json(path / "model.safetensors.index.json", {"metadata": {"total_size": size}, "weight_map": weight_map})


def _write_json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
