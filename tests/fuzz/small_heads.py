"""What the random draft heads of all kinds have in common: one layer of two heads, which reads the target's last."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file

from specserve.models.read_config import read_config

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

SMALL_HEAD = "bytes_per_token.txt"
"""In its directory: what the KV cache has of a token at most, keys, values and a hidden state in float32."""
HIDDEN, HEAD_DIM, HEADS, INNER = 32, 16, 2, 48


class SmallHead:
    """Of one target. Weights are drawn in the order in which they are asked for."""

    def __init__(self, target: Path) -> None:
        self.target = read_config(target)
        self.vocabulary, self.width = self.target.vocab_size, self.target.hidden_size
        self.generator = torch.Generator().manual_seed(0)

    def weight(self, rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=self.generator).div(columns**0.5)

    def layer(self, inputs: int) -> dict[str, Tensor]:
        """By name, without `.weight`; `inputs`: what queries, keys and values read."""
        return {
            "input_layernorm": torch.ones(HIDDEN),
            "post_attention_layernorm": torch.ones(HIDDEN),
            **{f"self_attn.{part}_proj": self.weight(HEADS * HEAD_DIM, inputs) for part in "qkv"},
            "self_attn.o_proj": self.weight(HIDDEN, HEADS * HEAD_DIM),
            "mlp.gate_proj": self.weight(INNER, HIDDEN),
            "mlp.up_proj": self.weight(INNER, HIDDEN),
            "mlp.down_proj": self.weight(HIDDEN, INNER),
        }

    def write(self, path: Path, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> Path:
        """`numbers` are what config.json has beside those of all kinds."""
        path.mkdir(exist_ok=True)
        (path / SMALL_HEAD).write_text(str(4 * (2 * HEADS * HEAD_DIM + 2 * self.width)))
        save_file(tensors, path / "model.safetensors")
        common = {
            "hidden_size": HIDDEN,
            "intermediate_size": INNER,
            "num_hidden_layers": 1,
            "num_attention_heads": HEADS,
            "num_key_value_heads": HEADS,
            "head_dim": HEAD_DIM,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": self.target.max_position_embeddings,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
        }
        (path / "config.json").write_text(json.dumps(common | numbers))
        return path
