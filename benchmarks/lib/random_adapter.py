"""A random LoRA adapter, in PEFT's format."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save_file

from benchmarks.lib.workload import MODEL
from specserve.models.locate import locate_model
from specserve.models.read_config import read_config

if TYPE_CHECKING:
    from pathlib import Path


def write_random_adapter(path: Path, rank: int, seed: int, model: Path | None = None) -> Path:
    """On every linear layer of the model, the demo's by default, with weights so small that outputs stay text."""
    config = read_config(model or locate_model(MODEL))
    generator = torch.Generator().manual_seed(seed)
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    hidden, inner = config.hidden_size, config.intermediate_size
    shapes = {
        "self_attn.q_proj": (queries, hidden), "self_attn.k_proj": (keys, hidden), "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries), "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }  # fmt: skip
    tensors: dict[str, torch.Tensor] = {}
    for layer in range(config.num_layers):
        for name, (out_features, in_features) in shapes.items():
            module = f"base_model.model.model.layers.{layer}.{name}"
            a = torch.randn(rank, in_features, generator=generator) * in_features**-0.5
            b = torch.randn(out_features, rank, generator=generator) * 0.01
            tensors |= {f"{module}.lora_A.weight": a, f"{module}.lora_B.weight": b}
    path.mkdir(exist_ok=True)
    save_file(tensors, path / "adapter_model.safetensors", metadata={"format": "pt"})
    fields = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": rank, "bias": "none",
        "target_modules": [name.rpartition(".")[2] for name in shapes], "base_model_name_or_path": MODEL,
    }  # fmt: skip
    (path / "adapter_config.json").write_text(json.dumps(fields))
    return path
