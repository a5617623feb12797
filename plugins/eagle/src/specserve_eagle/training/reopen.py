"""A trained draft model as a trainable module again: from its public files, for evaluation.

Heads of other trainers are read too, where they have the arithmetic of the modules here. What differs is refused by
name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from specserve.api import ConfigError, ModelError
from specserve.api.models import dense
from specserve.models.checkpoint import Checkpoint
from specserve.models.loader import check_tensors
from specserve.models.read_config import read_config
from specserve.models.tied_head import tied_as_stored
from specserve_eagle.checkpoints import draft_ids, kind_of, open_head, read_head_config
from specserve_eagle.checkpoints.layout import LAYER_PARTS
from specserve_eagle.checkpoints.stored import open_stored
from specserve_eagle.training.block_reopen import reopen_block_head
from specserve_eagle.training.head_rotation import head_rope
from specserve_eagle.training.heads import Eagle1Head, Eagle3Head, MtpHead
from specserve_eagle.training.modules import HeadShape
from specserve_eagle.training.standalone import DraftLlama
from specserve_eagle.training.uno_export import ADAPTER_CONFIG, reopen_adapter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from torch import Tensor

    from specserve.api.models import ModelConfig
    from specserve_eagle.checkpoints import HeadCheckpoint, HeadConfig
    from specserve_eagle.training.export import Module
    from specserve_eagle.training.target import Target


MTP_NAMES = {"fc": "eh_proj"}


def reopen(path: Path, target: Target) -> Module:
    """The draft model in directory `path` in the target's dtype and on its device. Raises ModelError."""
    if (path / ADAPTER_CONFIG).exists():
        return reopen_adapter(path, target).to(device=target.model.device).eval()
    readers: dict[str, Callable[[Path, Target], Module]] = {"standalone": reopen_standalone, "block": reopen_block_head}
    module = readers.get(kind_of(path), reopen_head)(path, target)
    return module.to(device=target.model.device, dtype=target.model.dtype).eval()


def reopen_head(path: Path, target: Target) -> Module:
    config = read_head_config(path, target.config)
    checkpoint = open_head(path, config)
    refuse_other_arithmetic(config, checkpoint, target.config)
    module = empty_head(config, checkpoint, target)
    names = (name for name in checkpoint.canonical_names if name not in ("d2t", "t2d", "fc.bias"))
    state = {module_name(name, config.kind): checkpoint.take(name) for name in names}
    if isinstance(module, Eagle3Head):
        state["draft_ids"] = module.draft_ids
        if not checkpoint.has("lm_head"):
            state["lm_head.weight"] = target.head.weight
    module.load_state_dict(state)
    return module


def empty_head(config: HeadConfig, checkpoint: HeadCheckpoint, target: Target) -> Eagle3Head | Eagle1Head | MtpHead:
    shape = HeadShape.of(config)
    if config.kind == "eagle":
        return Eagle1Head(target, shape)
    if config.kind == "mtp":
        return MtpHead(target, shape)
    ids = draft_ids(checkpoint, config)
    return Eagle3Head(target, shape, torch.arange(config.vocab_size) if ids is None else ids)


def module_name(canonical: str, kind: str) -> str:
    """The name of a tensor within the module of that kind."""
    if canonical.startswith("layers.0."):
        layer = "midlayer" if kind == "eagle3" else "layer"
        return f"{layer}.{LAYER_PARTS[canonical.removeprefix('layers.0.')]}.weight"
    return (MTP_NAMES.get(canonical, canonical) if kind == "mtp" else canonical) + ".weight"


def refuse_other_arithmetic(config: HeadConfig, checkpoint: HeadCheckpoint, target: ModelConfig) -> None:
    """ModelError for what the modules of `training.heads` do not have."""
    biased = config.qkv_bias or config.o_bias or config.mlp_bias
    fc_biased = config.fc_bias and bool(checkpoint.take("fc.bias").any())
    own_lm_head = config.kind != "eagle3" and checkpoint.has("lm_head")
    differences = {
        "masks, which draft all tokens in one pass": config.masks is not None,
        "biases": biased or fc_biased,
        "norms of queries and keys": config.qk_norm,
        "more than one layer": config.num_layers != 1,
        "experts": config.experts is not None,
        "norm_before_residual": config.norm_before_residual,
        "norms of the target's hidden states": config.target_norms is not None,
        "a norm of the hidden state that it feeds back": config.norm_output,
        "the hidden state before the embedding in its first projection": not config.embedding_first,
        "an embedding or output head of its own": checkpoint.has("embed_tokens") or own_lm_head,
        "another size than its target's": config.hidden_size != target.hidden_size,
        "another rotation than its target's": config.rope != head_rope(target),
        "other hidden states than the default ones": config.kind == "eagle3"
        and config.hidden_layers != (2, target.num_layers // 2, target.num_layers - 3),
    }
    if found := [name for name, differs in differences.items() if differs]:
        raise ConfigError(f"{checkpoint.path}: the head has {found[0]}, which teacher-forced evaluation does not know.")


def reopen_standalone(path: Path, target: Target) -> DraftLlama:
    config = read_config(path)
    refuse_other_model(path, config, target.config)
    checkpoint = Checkpoint(open_stored(path, config.quantization))
    config = tied_as_stored(config, checkpoint, target.model.dtype)
    shapes = check_tensors(config, checkpoint)
    model = DraftLlama(config.vocab_size, HeadShape.of(config), config.num_layers, tied=config.tied)
    model.load_state_dict(read_state(checkpoint, shapes))
    return model


def read_state(checkpoint: Checkpoint, names: Iterable[str]) -> dict[str, Tensor]:
    return {name.removeprefix("model."): dense(checkpoint.take(name)) for name in names}


def refuse_other_model(path: Path, config: ModelConfig, target: ModelConfig) -> None:
    if config.vocab_size != target.vocab_size:
        raise ModelError(
            f"{path} has a vocabulary of {config.vocab_size} tokens; its target has {target.vocab_size}. "
            "A draft model needs its target's tokenizer."
        )
    is_plain = config.family == "llama" and not (config.qkv_bias or config.o_bias or config.mlp_bias)
    same_rotation = (config.rope, config.head_dim) == (head_rope(target), target.head_dim)
    if not is_plain or not same_rotation:
        raise ConfigError(
            f"{path}: teacher-forced evaluation knows stand-alone models of family llama without biases and with "
            "their target's head size and rotation, as `specserve-eagle train` makes them."
        )
