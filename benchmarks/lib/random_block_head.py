"""A DSpark head of random weights for any target: its speed is a trained head's, its drafts are never right."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import torch
from safetensors.torch import save_file

from specserve.model_files import read_json
from specserve.models.read_config import read_config

if TYPE_CHECKING:
    from pathlib import Path

    from specserve.models.config import ModelConfig


class BlockShape(NamedTuple):
    """`draft_vocab_size`: of an output head of its own."""

    block_size: int
    num_layers: int
    markov_rank: int
    draft_vocab_size: int


def write_random_block_head(target: Path, folder: Path, shape: BlockShape) -> Path:
    """Written on first use."""
    if (folder / "config.json").exists():
        return folder
    config = read_config(target)
    generator = torch.Generator().manual_seed(0)
    tensors = {
        name: (torch.randn(size, generator=generator) * 0.02).bfloat16() for name, size in shapes_of(config, shape)
    }
    mask = torch.zeros(config.vocab_size, dtype=torch.bool)
    mask[: shape.draft_vocab_size] = True
    folder.mkdir(parents=True, exist_ok=True)
    tables = {"d2t": torch.zeros(shape.draft_vocab_size, dtype=torch.int64), "t2d": mask}
    save_file(tensors | tables, folder / "model.safetensors")
    last = config.num_layers - 3
    own = {
        "architectures": ["Qwen3DSparkModel"],
        "model_type": "qwen3",
        "num_hidden_layers": shape.num_layers,
        "head_dim": config.head_dim,
        "block_size": shape.block_size,
        "mask_token_id": config.vocab_size - 1,
        "target_layer_ids": [1, config.num_layers // 2 - 1, last],
        "sample_from_anchor": True,
        "markov_rank": shape.markov_rank,
        "markov_head_type": "vanilla",
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
        "draft_vocab_size": shape.draft_vocab_size,
        "attention_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    kept = {
        key: value
        for key, value in read_json(target / "config.json").items()
        if key not in ("layer_types", "sliding_window", "use_sliding_window")
    }
    (folder / "config.json").write_text(json.dumps(kept | own, indent=2) + "\n")
    return folder


def shapes_of(config: ModelConfig, shape: BlockShape) -> list[tuple[str, tuple[int, ...]]]:
    """Every tensor but the tables of the draft vocabulary, by its name in the file."""
    H, inner, V, D = config.hidden_size, config.intermediate_size, config.vocab_size, shape.draft_vocab_size
    q_size, kv_size, rank = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim, shape.markov_rank
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm": (H,),
        "post_attention_layernorm": (H,),
        "self_attn.q_proj": (q_size, H),
        "self_attn.k_proj": (kv_size, H),
        "self_attn.v_proj": (kv_size, H),
        "self_attn.o_proj": (H, q_size),
        "self_attn.q_norm": (config.head_dim,),
        "self_attn.k_norm": (config.head_dim,),
        "mlp.gate_proj": (inner, H),
        "mlp.up_proj": (inner, H),
        "mlp.down_proj": (H, inner),
    }
    modules: dict[str, tuple[int, ...]] = {"fc": (H, 3 * H), "hidden_norm": (H,), "norm": (H,), "lm_head": (D, H)}
    modules |= {"markov_head.markov_w1": (V, rank), "markov_head.markov_w2": (D, rank)}
    modules |= {"confidence_head.proj": (1, H + rank)}
    for index in range(shape.num_layers):
        modules |= {f"layers.{index}.{name}": size for name, size in layer.items()}
    return [(f"{name}.weight", size) for name, size in modules.items()]
