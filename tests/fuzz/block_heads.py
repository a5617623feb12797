"""Writes a random DSpark head for any target."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fuzz.small_heads import HEAD_DIM, HIDDEN, SmallHead

if TYPE_CHECKING:
    from pathlib import Path

RANK, BLOCK = 8, 4


def write_block_head(target: Path, path: Path) -> Path:
    """It reads the embedding and the last layer's output."""
    small = SmallHead(target)
    layer = small.layer(HIDDEN)
    layer |= {f"self_attn.{part}_norm": torch.ones(HEAD_DIM) for part in "qk"}
    head = {f"layers.0.{name}": tensor for name, tensor in layer.items()} | {
        "fc": small.weight(HIDDEN, 2 * small.width),
        "hidden_norm": torch.ones(HIDDEN),
        "norm": torch.ones(HIDDEN),
        "embed_tokens": small.weight(small.vocabulary, HIDDEN),
        "lm_head": small.weight(small.vocabulary, HIDDEN),
        "markov_head.markov_w1": small.weight(small.vocabulary, RANK),
        "markov_head.markov_w2": small.weight(small.vocabulary, RANK),
        "confidence_head.proj": small.weight(1, HIDDEN + RANK),
    }
    numbers = {
        "architectures": ["DSparkDraftModel"],
        "block_size": BLOCK,
        "mask_token_id": small.vocabulary - 1,
        "aux_hidden_state_layer_ids": [0, small.target.num_layers],
        "markov_rank": RANK,
        "enable_confidence_head": True,
    }
    return small.write(path, {f"{name}.weight": tensor for name, tensor in head.items()}, numbers)
