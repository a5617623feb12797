"""Models with the shape of a real one and random weights, written on first use.

Their speed is that of a trained model. Their text is not, so acceptance lengths on them mean nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specserve.models.locate import locate_model
from specserve_workbench.testing.toy import write_checkpoint

HALF_BILLION, EXPERTS, DENSE = "half-billion", "billion-experts", "as-dense"
SMALL_LLAMA, SMALL_GRANITE = "small-llama", "small-granite"
SHORT_CONVS, DELTA_NETS = "short-convolutions", "gated-delta-nets"
ATTENTION = {SHORT_CONVS: "attention-for-convolutions", DELTA_NETS: "attention-for-delta-nets"}
"""Dense models of the same sizes, with attention in every layer."""
SMALL: dict[str, Any] = {  # 8 layers, 107 million parameters, 213 MB in bfloat16
    "vocab_size": 16384,
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "tie_word_embeddings": True,
}
WIDE_HEADS: dict[str, Any] = {
    "vocab_size": 32768,
    "hidden_size": 1024,
    "intermediate_size": 3584,
    "num_hidden_layers": 24,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e7,
    "tie_word_embeddings": True,
}
SHAPES: dict[str, dict[str, Any]] = {
    SMALL_LLAMA: {**SMALL, "architecture": "llama"},
    SMALL_GRANITE: {**SMALL, "architecture": "granite"},
    # of Qwen2.5-0.5B: 24 layers, 494 million parameters, about 1 GB in bfloat16
    HALF_BILLION: {
        "architecture": "qwen2",
        "vocab_size": 151936,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "tie_word_embeddings": True,
    },
    # of LFM2-350M: 16 layers, 10 of which have short convolutions, 354 million parameters, 709 MB in bfloat16
    SHORT_CONVS: {
        "architecture": "lfm2",
        "vocab_size": 65536,
        "hidden_size": 1024,
        "block_ff_dim": 6656,
        "block_multiple_of": 256,
        "num_hidden_layers": 16,
        "full_attn_idxs": [2, 5, 8, 10, 12, 14],
        "conv_L_cache": 3,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "max_position_embeddings": 4096,
        "rope_theta": 1e6,
        "tie_word_embeddings": True,
    },
    ATTENTION[SHORT_CONVS]: {
        "architecture": "qwen3",
        "vocab_size": 65536,
        "hidden_size": 1024,
        "intermediate_size": 4608,
        "num_hidden_layers": 16,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "max_position_embeddings": 4096,
        "rope_theta": 1e6,
        "tie_word_embeddings": True,
    },
    # of Qwen3.5-0.8B with fewer words: 24 layers, 18 of which are gated delta nets, 532 million parameters
    DELTA_NETS: {
        **WIDE_HEADS,
        "architecture": "qwen3_5_text",
        "full_attention_interval": 4,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 16,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "partial_rotary_factor": 0.25,
    },
    ATTENTION[DELTA_NETS]: {**WIDE_HEADS, "architecture": "qwen3"},
    # of Qwen3-30B-A3B, made smaller: 16 layers, 1.0 billion parameters, of which a token reads 0.22 billion
    EXPERTS: {
        "architecture": "qwen3_moe",
        "vocab_size": 32768,
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 16,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "num_experts": 32,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 512,
        "norm_topk_prob": True,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "tie_word_embeddings": True,
    },
    # its attention, and an MLP as wide as a token's experts together
    DENSE: {
        "architecture": "qwen3",
        "vocab_size": 32768,
        "hidden_size": 1024,
        "intermediate_size": 2048,
        "num_hidden_layers": 16,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "tie_word_embeddings": True,
    },
}
MODEL_HELP = f"demo, {', '.join(SHAPES)} or a directory"
BUILD = Path(__file__).parents[2] / "build" / "models"


def model_directory(name: str) -> Path:
    """An installed model, a directory, or one of SHAPES, which is written on first use."""
    if name not in SHAPES:
        return locate_model(name)
    path = BUILD / name
    if not (path / "model.safetensors").exists():
        write_checkpoint(path, dtype="bfloat16", **SHAPES[name])
    return path
