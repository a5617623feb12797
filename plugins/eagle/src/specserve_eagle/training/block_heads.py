"""Block heads that can be trained: DFlash (Chen et al., 2026) and DSpark (DeepSeek, 2026) over a target's hidden
states.

Tensors have their public names. Letters: B windows, T tokens of each, A blocks of a window, S rows of a block, P draft
tokens of one, W numbers of the target's hidden states that are read, H hidden size, V vocabulary, D draft vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from specserve_eagle.training.block_modules import BlockLayer, Confidence, places_of
from specserve_eagle.training.heads import (
    begin_layer,
    copy_if_equal,
    copy_norm,
    last_layer,
    pass_through,
)
from specserve_eagle.training.markov_heads import MarkovHead
from specserve_eagle.training.modules import HeadShape, Norm, Rotation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from specserve.api.models import DecoderLayer
    from specserve_eagle.block.config import BlockConfig, MarkovKind
    from specserve_eagle.training.block_modules import Places
    from specserve_eagle.training.target import Target
    from specserve_eagle.training.teacher import Features


FIRST_LOGITS, FIRST_ATTENTION, FIRST_MLP = 0.5, 0.3, 0.1
"""What a new head's logits and its layers' outputs are multiplied by: a head of the demo model comes as far in 20 steps
as in 60 without it."""


class BlockShape(NamedTuple):
    """The numbers of a block head."""

    layer: HeadShape
    num_layers: int
    block_size: int
    reads: tuple[int, ...]
    """Which of the target's hidden states: 0 is the embedding, n the output of layer n - 1."""
    proposes_from_first: bool
    """The first row proposes, too."""
    markov_rank: int
    """0: none."""
    markov_kind: MarkovKind
    confidence: str
    """What the confidence head reads; see `BlockConfig`."""

    @classmethod
    def of(cls, config: BlockConfig) -> BlockShape:
        return cls(
            HeadShape.of(config.layers),
            config.layers.num_layers,
            config.block_size,
            config.hidden_layers,
            config.proposes_from_first,
            config.markov_rank,
            config.markov_kind,
            config.confidence,
        )

    @property
    def num_proposed(self) -> int:
        """P."""
        return self.block_size if self.proposes_from_first else self.block_size - 1


class Place(NamedTuple):
    """What a block drafts at one of its places."""

    terms: tuple[Tensor, ...]
    """[..., D] each, whose sum the logits are."""
    confidence: Tensor | None
    """[...]: logits of the probability that it is accepted."""

    @property
    def logits(self) -> Tensor:
        first, *more = self.terms
        return sum((term.float() for term in more), first.float()) if more else first


def block_reads(num_layers: int) -> tuple[int, ...]:
    """The hidden states that a new head reads of a target with that many layers: early, middle and late ones."""
    return tuple(sorted({min(2, num_layers), max(1, num_layers // 2), max(1, num_layers - 2)}))


class BlockHeadModule(nn.Module):
    """`forward` gives the states of blocks, `places` what they draft behind given tokens and how sure that is.

    draft_ids: [D], the target's ids of the draft vocabulary, for which the head has an output head of its own; None:
    the target's vocabulary and output head.
    """

    draft_ids: Tensor | None
    mask_token: Tensor
    """[] int64: the token of every row but the first. It is saved with the head."""

    def __init__(self, target: Target, shape: BlockShape, mask_token: int, draft_ids: Tensor | None = None) -> None:
        super().__init__()
        self.shape, self.kind = shape, "dspark" if shape.markov_rank else "dflash"
        config, layer = target.config, shape.layer
        vocab_size = config.vocab_size if draft_ids is None else len(draft_ids)
        self.register_buffer("draft_ids", draft_ids)
        self.register_buffer("mask_token", torch.tensor(mask_token))
        self.fc = nn.Linear(len(shape.reads) * config.hidden_size, layer.hidden_size, bias=False)
        self.hidden_norm = Norm(layer.hidden_size, layer.norm_eps)
        self.layers = nn.ModuleList(BlockLayer(layer) for _ in range(shape.num_layers))
        self.norm = Norm(layer.hidden_size, layer.norm_eps)
        self.lm_head = None if draft_ids is None else nn.Linear(layer.hidden_size, vocab_size, bias=False)
        self.target_head = target.head
        rank = shape.markov_rank
        self.markov_head = None
        if rank:
            sizes = layer.hidden_size, vocab_size, rank
            self.markov_head = MarkovHead(target.embedding, *sizes, shape.markov_kind)
        inputs = layer.hidden_size + (rank if shape.confidence == "hidden and token" else 0)
        self.confidence_head = None if shape.confidence == "nothing" else Confidence(inputs)
        self.begin_as(target)

    @torch.no_grad()
    def begin_as(self, target: Target) -> None:
        """The target's last layers, which read its last hidden state of those that are read. They add little at first:
        they are given an embedding, which is far from what they read in the target."""
        last, num_layers = last_layer(target), target.config.num_layers
        pass_through(self.fc, self.fc.in_features - target.config.hidden_size)
        copy_norm(self.hidden_norm, None if last is None else last.input_norm)
        copy_norm(self.norm, target.norm_weight)
        self.norm.weight.mul_(FIRST_LOGITS)
        for index, layer in enumerate(self.layers, max(0, num_layers - len(self.layers))):
            assert isinstance(layer, BlockLayer)
            begin_block_layer(layer, target.layers[min(index, num_layers - 1)] if target.layers else None)
        if self.lm_head is not None:
            self.lm_head.weight.copy_(target.head.weight[self.draft_ids])

    def forward(self, hidden: Tensor, x: Tensor, places: Places) -> Tensor:
        """hidden: [B, T, W] of the target; x: [B, A S, H], the embedded rows -> [B, A S, H], as the output head reads
        them."""
        text = self.hidden_norm(self.fc(hidden))
        for layer in self.layers:
            x = layer(x, text, places)
        out: Tensor = self.norm(x)
        return out

    def places(self, states: Tensor, before: Tensor) -> Iterator[Place]:
        """Of every place of blocks: states: [..., P, H]; before: [..., P], the target's ids of the tokens before."""
        memory = None
        for state, tokens in zip(states.unbind(-2), before.unbind(-1), strict=True):
            terms, entry = [self.target_head(state) if self.lm_head is None else self.lm_head(state)], None
            if self.markov_head is not None:
                entry = self.markov_head.markov_w1(tokens)
                read, memory = self.markov_head.read(entry, state, memory)
                terms.append(self.markov_head.markov_w2(read))
            yield Place(tuple(terms), self.confidence(state, entry))

    def confidence(self, states: Tensor, entry: Tensor | None) -> Tensor | None:
        """[...]: logits; None without a confidence head. Nothing but that head learns from it."""
        if self.confidence_head is None:
            return None
        inputs = [states.detach()]
        if self.shape.confidence == "hidden and token" and entry is not None:
            inputs.append(entry.detach())
        logits: Tensor = self.confidence_head(torch.cat(inputs, -1)).float()
        return logits


def begin_block_layer(layer: BlockLayer, begin: DecoderLayer | None) -> None:
    """As that layer of the target, as far as shapes allow."""
    begin_layer(layer, begin)
    attention = layer.self_attn
    if begin is not None:
        copy_norm(layer.input_layernorm, begin.input_norm)
        for mine, theirs in ((attention.q_norm, begin.q_norm), (attention.k_norm, begin.k_norm)):
            if theirs is not None:
                copy_if_equal(mine.weight, theirs)
    attention.o_proj.weight.mul_(FIRST_ATTENTION)
    layer.mlp.down_proj.weight.mul_(FIRST_MLP)


def block_states(head: BlockHeadModule, target: Target, features: Features, ids: Tensor, anchors: Tensor) -> Tensor:
    """ids: [B, T]; anchors: [A], the positions of the tokens that blocks begin with, the same in all windows
    -> [B, A, P, H], the states that draft the tokens after each anchor."""
    shape, (B, T) = head.shape, ids.shape
    rows = head.mask_token.expand(B, len(anchors), shape.block_size).clone()
    rows[:, :, 0] = ids[:, anchors]
    table = Rotation(target.rotary.cos[:, 0], target.rotary.sin[:, 0])
    places = places_of(table, T, anchors, shape.block_size)
    hidden = torch.cat([features.hidden[layer] for layer in shape.reads], -1)
    states: Tensor = head(hidden, F.embedding(rows.flatten(1), target.embedding), places)
    return states.view(B, len(anchors), shape.block_size, -1)[:, :, shape.block_size - shape.num_proposed :]
