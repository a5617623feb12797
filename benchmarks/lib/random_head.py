"""An EAGLE-3 head of random weights for any target: its speed is a trained head's, its drafts are never accepted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save_file

from specserve.model_files import read_json
from specserve.models.read_config import read_config

if TYPE_CHECKING:
    from pathlib import Path


def write_random_head(target: Path, folder: Path, draft_vocab_size: int) -> Path:
    """Written on first use."""
    if (folder / "config.json").exists():
        return folder
    config = read_config(target)
    H, inner, V, D = config.hidden_size, config.intermediate_size, config.vocab_size, draft_vocab_size
    q_size, kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    shapes = {
        "fc": (H, 3 * H),
        "midlayer.self_attn.q_proj": (q_size, 2 * H),
        "midlayer.self_attn.k_proj": (kv_size, 2 * H),
        "midlayer.self_attn.v_proj": (kv_size, 2 * H),
        "midlayer.self_attn.o_proj": (H, q_size),
        "midlayer.mlp.gate_proj": (inner, H),
        "midlayer.mlp.up_proj": (inner, H),
        "midlayer.mlp.down_proj": (H, inner),
        "lm_head": (D, H),
    } | dict.fromkeys(
        ("midlayer.input_layernorm", "midlayer.hidden_norm", "midlayer.post_attention_layernorm", "norm"), (H,)
    )
    generator = torch.Generator().manual_seed(0)
    tensors = {
        f"{name}.weight": (torch.randn(shape, generator=generator) * 0.02).bfloat16() for name, shape in shapes.items()
    }
    mask = torch.zeros(V, dtype=torch.bool)
    mask[:D] = True
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors | {"d2t": torch.zeros(D, dtype=torch.int64), "t2d": mask}, folder / "model.safetensors")
    raw = read_json(target / "config.json")
    sizes = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "draft_vocab_size": D,
        "head_dim": config.head_dim,
        "attention_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    kept = {
        key: value for key, value in raw.items() if key not in ("layer_types", "sliding_window", "use_sliding_window")
    }
    (folder / "config.json").write_text(json.dumps(kept | sizes, indent=2) + "\n")
    return folder
