"""Writes a random P-EAGLE head for any target."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fuzz.small_heads import HIDDEN, SmallHead

if TYPE_CHECKING:
    from pathlib import Path


def write_parallel_head(target: Path, path: Path) -> Path:
    """It reads the embedding and the last layer's output."""
    small = SmallHead(target)
    layer = small.layer(2 * HIDDEN) | {"hidden_norm": torch.ones(HIDDEN)}
    head = {f"midlayer.{name}.weight": tensor for name, tensor in layer.items()} | {
        "fc.weight": small.weight(HIDDEN, 2 * small.width),
        "norm.weight": torch.ones(HIDDEN),
        "embed_tokens.weight": small.weight(small.vocabulary, HIDDEN),
        "lm_head.weight": small.weight(small.vocabulary, HIDDEN),
        "mask_hidden": small.weight(1, 2 * small.width),
    }
    numbers = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "target_hidden_size": small.width,
        "draft_vocab_size": small.vocabulary,
        "ptd_token_id": small.vocabulary - 1,
        "eagle_aux_hidden_state_layer_ids": [0, small.target.num_layers],
    }
    return small.write(path, head, numbers)
