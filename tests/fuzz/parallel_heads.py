"""Writes a random P-EAGLE head for any target."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save_file

from fuzz.block_heads import HEAD_DIM, HEADS, HIDDEN, INNER, SMALL_HEAD
from specserve.models.read_config import read_config

if TYPE_CHECKING:
    from pathlib import Path


def write_parallel_head(target: Path, path: Path) -> Path:
    """One layer of two heads, which reads the embedding and the last layer's output."""
    config, generator = read_config(target), torch.Generator().manual_seed(0)
    vocabulary, width = config.vocab_size, config.hidden_size

    def weight(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator).div(columns**0.5)

    layer = {
        "input_layernorm": torch.ones(HIDDEN),
        "hidden_norm": torch.ones(HIDDEN),
        "post_attention_layernorm": torch.ones(HIDDEN),
        **{f"self_attn.{part}_proj": weight(HEADS * HEAD_DIM, 2 * HIDDEN) for part in "qkv"},
        "self_attn.o_proj": weight(HIDDEN, HEADS * HEAD_DIM),
        "mlp.gate_proj": weight(INNER, HIDDEN),
        "mlp.up_proj": weight(INNER, HIDDEN),
        "mlp.down_proj": weight(HIDDEN, INNER),
    }
    head = {f"midlayer.{name}.weight": tensor for name, tensor in layer.items()} | {
        "fc.weight": weight(HIDDEN, 2 * width),
        "norm.weight": torch.ones(HIDDEN),
        "embed_tokens.weight": weight(vocabulary, HIDDEN),
        "lm_head.weight": weight(vocabulary, HIDDEN),
        "mask_hidden": weight(1, 2 * width),
    }
    path.mkdir(exist_ok=True)
    (path / SMALL_HEAD).write_text(str(4 * (2 * HEADS * HEAD_DIM + 2 * width)))
    save_file(head, path / "model.safetensors")
    numbers = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "hidden_size": HIDDEN,
        "target_hidden_size": width,
        "intermediate_size": INNER,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": vocabulary,
        "draft_vocab_size": vocabulary,
        "max_position_embeddings": config.max_position_embeddings,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "ptd_token_id": vocabulary - 1,
        "eagle_aux_hidden_state_layer_ids": [0, config.num_layers],
    }
    (path / "config.json").write_text(json.dumps(numbers))
    return path
