"""A stand-alone draft model: a small Llama over the target's vocabulary, trained by distillation.

It reads no hidden states, so it is not unrolled: its loss is the cross-entropy to the target's distribution at every
position. Head size and rotation are the target's. Letters: B windows, T tokens of each, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import nn

from specserve.api import ConfigError
from specserve_eagle.training.matching import match
from specserve_eagle.training.modules import HeadShape, Norm, PlainLayer, Rotation
from specserve_eagle.training.unroll import weighted

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.api.models import ModelConfig
    from specserve_eagle.training.target import Target
    from specserve_eagle.training.unroll import Unrolled

DEFAULT_LAYERS = 2
INIT_STD = 0.02


def standalone_shape(config: ModelConfig, hidden_size: int | None, intermediate_size: int | None) -> HeadShape:
    """The numbers of a small model for the target `config`; half its width where none is given."""
    head_dim = config.head_dim
    hidden = hidden_size or max(1, config.hidden_size // 2 // head_dim) * head_dim
    if hidden % head_dim:
        raise ConfigError(
            f"--hidden-size {hidden}: it must be a multiple of {head_dim}, the target's size of an attention head."
        )
    num_heads = hidden // head_dim
    num_kv_heads = max(1, num_heads * config.num_kv_heads // config.num_heads)
    if num_heads % num_kv_heads:
        num_kv_heads = num_heads
    inner = intermediate_size or round_up(hidden * config.intermediate_size // config.hidden_size, 32)
    return HeadShape(hidden, inner, num_heads, num_kv_heads, head_dim, config.norm_eps)


def round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


class DraftLlama(nn.Module):
    """`tied`: the output head is the embedding."""

    kind = "standalone"

    def __init__(self, vocab_size: int, shape: HeadShape, num_layers: int, *, tied: bool = True) -> None:
        super().__init__()
        self.shape, self.tied = shape, tied
        self.embed_tokens = nn.Embedding(vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(PlainLayer(shape, input_norm=True) for _ in range(num_layers))
        self.norm = Norm(shape.hidden_size, shape.norm_eps)
        self.lm_head = None if tied else nn.Linear(shape.hidden_size, vocab_size, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=INIT_STD)

    def forward(self, ids: Tensor, rotation: Rotation) -> Tensor:
        """ids: [B, T] -> logits [B, T, V]."""
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, rotation, [])
        head = self.embed_tokens if self.lm_head is None else self.lm_head
        return F.linear(self.norm(x), head.weight)


def draft_logits(model: DraftLlama, target: Target, ids: Tensor) -> Tensor:
    """ids: [B, T] -> [B, T, V]."""
    table, T = target.rotary, ids.shape[1]
    logits: Tensor = model(ids, Rotation(table.cos[:T, 0], table.sin[:T, 0]))
    return logits


def distill(model: DraftLlama, target: Target, ids: Tensor) -> Unrolled:
    """ids: [B, T] int64. One step: each further one would see the same text and agree as often."""
    teacher = target.lesson(ids, (), None).teacher
    return weighted([match((draft_logits(model, target, ids),), teacher)])
