"""Writes a random DSpark head for any target."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save_file

from specserve.models.read_config import read_config

if TYPE_CHECKING:
    from pathlib import Path

SMALL_HEAD = "bytes_per_token.txt"
"""In its directory: what the KV cache has of a token at most, keys, values and a hidden state in float32."""
HIDDEN, HEAD_DIM, HEADS, INNER, RANK, BLOCK = 32, 16, 2, 48, 8, 4


def write_block_head(target: Path, path: Path) -> Path:
    """One layer of two heads, which reads the embedding and the last layer's output."""
    config, generator = read_config(target), torch.Generator().manual_seed(0)
    vocabulary, width = config.vocab_size, config.hidden_size

    def weight(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator).div(columns**0.5)

    layer = {
        "input_layernorm": torch.ones(HIDDEN),
        "post_attention_layernorm": torch.ones(HIDDEN),
        **{f"self_attn.{part}_proj": weight(HEADS * HEAD_DIM, HIDDEN) for part in "qkv"},
        "self_attn.o_proj": weight(HIDDEN, HEADS * HEAD_DIM),
        "self_attn.q_norm": torch.ones(HEAD_DIM),
        "self_attn.k_norm": torch.ones(HEAD_DIM),
        "mlp.gate_proj": weight(INNER, HIDDEN),
        "mlp.up_proj": weight(INNER, HIDDEN),
        "mlp.down_proj": weight(HIDDEN, INNER),
    }
    head = {f"layers.0.{name}": tensor for name, tensor in layer.items()} | {
        "fc": weight(HIDDEN, 2 * width),
        "hidden_norm": torch.ones(HIDDEN),
        "norm": torch.ones(HIDDEN),
        "embed_tokens": weight(vocabulary, HIDDEN),
        "lm_head": weight(vocabulary, HIDDEN),
        "markov_head.markov_w1": weight(vocabulary, RANK),
        "markov_head.markov_w2": weight(vocabulary, RANK),
        "confidence_head.proj": weight(1, HIDDEN + RANK),
    }
    path.mkdir(exist_ok=True)
    (path / SMALL_HEAD).write_text(str(4 * (2 * HEADS * HEAD_DIM + 2 * width)))
    save_file({f"{name}.weight": tensor for name, tensor in head.items()}, path / "model.safetensors")
    numbers = {
        "architectures": ["DSparkDraftModel"],
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": vocabulary,
        "max_position_embeddings": config.max_position_embeddings,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "block_size": BLOCK,
        "mask_token_id": vocabulary - 1,
        "aux_hidden_state_layer_ids": [0, config.num_layers],
        "markov_rank": RANK,
        "enable_confidence_head": True,
    }
    (path / "config.json").write_text(json.dumps(numbers))
    return path
