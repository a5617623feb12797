"""Models with the shape of a real one and random weights, written on first use.

Their speed is that of a trained model. Their text is not, so acceptance lengths on them mean nothing.
"""

from __future__ import annotations

from pathlib import Path

from specserve.models.locate import locate_model
from specserve_workbench.testing.toy import write_checkpoint

HALF_BILLION = "half-billion"
"""The shape of Qwen2.5-0.5B: 24 layers, 494 million parameters, about 1 GB in bfloat16."""
BUILD = Path(__file__).parents[2] / "build" / "models"


def model_directory(name: str) -> Path:
    """An installed model, a directory, or `half-billion`, which is written on first use."""
    if name != HALF_BILLION:
        return locate_model(name)
    path = BUILD / HALF_BILLION
    if not (path / "model.safetensors").exists():
        write_checkpoint(
            path,
            architecture="qwen2",
            dtype="bfloat16",
            vocab_size=151936,
            hidden_size=896,
            intermediate_size=4864,
            num_hidden_layers=24,
            num_attention_heads=14,
            num_key_value_heads=2,
            head_dim=64,
            max_position_embeddings=32768,
            rms_norm_eps=1e-6,
            rope_theta=1e6,
            tie_word_embeddings=True,
        )
    return path
