"""A block head as a trainable module again: from its public files, for evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from specserve.api import ConfigError
from specserve_eagle.block.config import read_block_config
from specserve_eagle.block.tensors import open_block_head
from specserve_eagle.checkpoints.block_names import candidates
from specserve_eagle.checkpoints.vocabulary import draft_ids
from specserve_eagle.training.block_heads import BlockHeadModule, BlockShape
from specserve_eagle.training.head_rotation import head_rope

if TYPE_CHECKING:
    from pathlib import Path

    from specserve.api.models import ModelConfig
    from specserve_eagle.block.config import BlockConfig
    from specserve_eagle.checkpoints.tensors import HeadCheckpoint
    from specserve_eagle.training.target import Target


def reopen_block_head(path: Path, target: Target) -> BlockHeadModule:
    """Raises ModelError, and ConfigError for what the module does not have."""
    config = read_block_config(path, target.config)
    checkpoint = open_block_head(path, config)
    refuse_other_arithmetic(config, checkpoint, target.config)
    ids = draft_ids(checkpoint, config)
    if ids is None and checkpoint.has("lm_head"):
        ids = torch.arange(config.draft_vocab_size)
    module = BlockHeadModule(target, BlockShape.of(config), config.mask_token, ids)
    state = {name: tensor for name, tensor in module.state_dict().items() if name in ("draft_ids", "mask_token")}
    for name in checkpoint.canonical_names - {"d2t", "t2d"}:
        state[candidates(name)[0]] = checkpoint.take(name)
    if config.confidence != "nothing" and not checkpoint.has("confidence.bias"):
        state["confidence_head.proj.bias"] = torch.zeros(1)
    module.load_state_dict(state)
    return module


def refuse_other_arithmetic(config: BlockConfig, checkpoint: HeadCheckpoint, target: ModelConfig) -> None:
    """ConfigError for what the module does not have."""
    layers = config.layers
    differences = {
        "biases": layers.qkv_bias or layers.o_bias,
        "sliding windows": any(window is not None for window in layers.sliding_windows),
        "causal blocks": config.is_causal,
        "an embedding of its own": checkpoint.has("embed_tokens"),
        "another size than its target's": layers.hidden_size != target.hidden_size,
        "another rotation than its target's": config.has_interleaved_rotation or layers.rope != head_rope(target),
    }
    if found := [name for name, differs in differences.items() if differs]:
        raise ConfigError(f"{checkpoint.path}: the head has {found[0]}, which teacher-forced evaluation does not know.")
