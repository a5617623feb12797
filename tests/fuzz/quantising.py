"""Layouts of quantised weights that checkpoints of trials are stored in, and which models can be."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file

from affine_checkpoints import Form, quantised_tensors, settings

if TYPE_CHECKING:
    from pathlib import Path

FORMS = {
    "w4": Form("pack-quantized", symmetric=True, scales=torch.bfloat16),
    "w4 asymmetric": Form("pack-quantized", group_size=16),
    "w8 asymmetric": Form("pack-quantized", bits=8, group_size=-1),
    "gptq": Form("gptq", group_size=16),
    "gptq ordered": Form("gptq", ordered=True),
    "awq": Form("awq"),
}
OF_ALL_SIZES = ("w4", "w4 asymmetric", "w8 asymmetric")
"""The others have words of eight inputs or outputs."""
NOT_QUANTISED = (
    *("gpt_oss", "granitemoe", "granitemoeshared", "mixtral", "olmoe", "qwen2_moe", "qwen3_moe", "glm4_moe"),
    *("lfm2", "lfm2_moe", "lfm3", "qwen3_5_text", "qwen3_5_moe_text", "gemma4_text"),
)
"""Families with experts, convolutions or recurrent layers, or vectors of tokens in all layers, whose files are not only
of matrices of layers alike."""
SHARE = 0.25


def draw_form(seed: int, family: str, config: dict[str, Any]) -> str | None:
    """By numbers of its own: plans are what they were without it."""
    rng = random.Random(seed)
    if rng.random() >= SHARE or family in NOT_QUANTISED:
        return None
    heads = [config["head_dim"] * config[key] for key in ("num_attention_heads", "num_key_value_heads")]
    sizes = (*heads, config["hidden_size"], config["intermediate_size"])
    return rng.choice((*FORMS,) if all(size % 8 == 0 for size in sizes) else OF_ALL_SIZES)


def quantise_files(path: Path, form: Form) -> None:
    """The model in directory `path` is stored in this layout from now on."""
    file, config = path / "model.safetensors", json.loads((path / "config.json").read_text())
    tensors, _ = quantised_tensors(load_file(file), form, leave=("lm_head",))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file, metadata={"format": "pt"})
    (path / "config.json").write_text(json.dumps(config | {"quantization_config": settings(form)}))
