"""The heads that can be trained: EAGLE-3, EAGLE-1 and MTP over a target's hidden states.

Each owns what it reads of the target, how it begins and which tensors it becomes. Where shapes allow, a head begins as
the target's last layer behind a map that passes the target's last hidden state through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from specserve.api.models import DenseMlp
from specserve_eagle.checkpoints.hidden_layers import default_layers
from specserve_eagle.training.modules import Eagle3Layer, HeadShape, Norm, PlainLayer

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.api.models import DecoderLayer
    from specserve_eagle.training.block_modules import BlockLayer
    from specserve_eagle.training.modules import Rotation
    from specserve_eagle.training.target import Target
    from specserve_eagle.training.teacher import Features

    Cache = list[tuple[Tensor, Tensor]]


SAMPLE = 256
"""Tokens on which the size of the target's hidden states is measured."""
SMALL = 1e-2


class Head(nn.Module):
    """One interface for all: `first` gives the hidden states of step 0, `forward` a step's own and its logits."""

    kind: str
    shape: HeadShape
    layers: tuple[int, ...] = ()
    """Layers of the target whose outputs it reads."""
    draft_ids: Tensor | None
    """[D] int64: the target's ids of the draft vocabulary, ascending; None: the whole vocabulary."""

    def __init__(self, shape: HeadShape, draft_ids: Tensor | None = None) -> None:
        super().__init__()
        self.shape = shape
        self.register_buffer("draft_ids", draft_ids)

    def first(self, features: Features) -> Tensor:
        """[B, T, H] from the target."""
        raise NotImplementedError

    def forward(self, embedded: Tensor, hidden: Tensor, rotation: Rotation, earlier: Cache) -> tuple[Tensor, Tensor]:
        """embedded: [B, N, H] of the tokens after; -> own hidden states [B, N, H], logits [B, N, V or D]."""
        raise NotImplementedError


class Eagle3Head(Head):
    kind = "eagle3"
    draft_ids: Tensor

    def __init__(self, target: Target, shape: HeadShape, draft_ids: Tensor) -> None:
        super().__init__(shape, draft_ids)
        config = target.config
        self.layers = default_layers(config.num_layers)
        self.fc = nn.Linear(3 * config.hidden_size, shape.hidden_size, bias=False)
        self.midlayer = Eagle3Layer(shape)
        self.norm = Norm(shape.hidden_size, shape.norm_eps)
        self.lm_head = nn.Linear(shape.hidden_size, len(draft_ids), bias=False)
        self.begin_as(target, draft_ids)

    @torch.no_grad()
    def begin_as(self, target: Target, draft_ids: Tensor) -> None:
        last = last_layer(target)
        pass_through(self.fc, 2 * target.config.hidden_size)
        begin_layer(self.midlayer, last)
        copy_norm(self.midlayer.hidden_norm, None if last is None else last.input_norm)
        copy_norm(self.norm, target.norm_weight)
        self.lm_head.weight.copy_(target.head.weight[draft_ids])

    def first(self, features: Features) -> Tensor:
        combined: Tensor = self.fc(torch.cat([features.hidden[layer] for layer in self.layers], -1))
        return combined

    def forward(self, embedded: Tensor, hidden: Tensor, rotation: Rotation, earlier: Cache) -> tuple[Tensor, Tensor]:
        hidden = self.midlayer(embedded, hidden, rotation, earlier)
        return hidden, self.lm_head(self.norm(hidden))


class Eagle1Head(Head):
    """The target's head reads the layer's output as it is."""

    kind = "eagle"

    def __init__(self, target: Target, shape: HeadShape) -> None:
        super().__init__(shape)
        self.fc = nn.Linear(2 * shape.hidden_size, shape.hidden_size, bias=False)
        self.layer = PlainLayer(shape, input_norm=False)
        self.target_head = target.head
        with torch.no_grad():
            pass_through(self.fc, shape.hidden_size)
            begin_layer(self.layer, last_layer(target))
            behind_final_norm(self.layer, target)

    def first(self, features: Features) -> Tensor:
        return features.final

    def forward(self, embedded: Tensor, hidden: Tensor, rotation: Rotation, earlier: Cache) -> tuple[Tensor, Tensor]:
        x = self.fc(torch.cat((embedded, hidden.to(embedded.dtype)), -1))
        hidden = self.layer(x, rotation, earlier)
        return hidden, self.target_head(hidden)


class MtpHead(Head):
    """Multi-token prediction as in DeepSeek-V3 (2024), its layer applied recursively: every step reads a hidden state
    behind a final norm, the first the target's, the others the head's own."""

    kind = "mtp"

    def __init__(self, target: Target, shape: HeadShape) -> None:
        super().__init__(shape)
        self.enorm = Norm(shape.hidden_size, shape.norm_eps)
        self.hnorm = Norm(shape.hidden_size, shape.norm_eps)
        self.eh_proj = nn.Linear(2 * shape.hidden_size, shape.hidden_size, bias=False)
        self.layer = PlainLayer(shape, input_norm=True)
        self.norm = Norm(shape.hidden_size, shape.norm_eps)
        self.target_head = target.head
        with torch.no_grad():
            pass_through(self.eh_proj, shape.hidden_size)
            begin_layer(self.layer, last := last_layer(target))
            copy_norm(self.layer.input_layernorm, None if last is None else last.input_norm)
            copy_norm(self.norm, target.final_norm.weight)

    def first(self, features: Features) -> Tensor:
        return features.final

    def forward(self, embedded: Tensor, hidden: Tensor, rotation: Rotation, earlier: Cache) -> tuple[Tensor, Tensor]:
        x = self.eh_proj(torch.cat((self.enorm(embedded), self.hnorm(hidden.to(embedded.dtype))), -1))
        hidden = self.norm(self.layer(x, rotation, earlier))
        return hidden, self.target_head(hidden)


def pass_through(linear: nn.Linear, begin: int) -> None:
    """The map that gives the inputs from `begin` on as they are, with a little of all others."""
    size = linear.out_features
    nn.init.normal_(linear.weight, std=0.02)
    linear.weight[:, begin : begin + size] += torch.eye(size, device=linear.weight.device)


def last_layer(target: Target) -> DecoderLayer | None:
    """None where another library computes the layers."""
    return target.layers[-1] if target.layers else None


def begin_layer(layer: Eagle3Layer | PlainLayer | BlockLayer, begin: DecoderLayer | None) -> None:
    """Begin as that layer of the target as far as shapes allow, elsewhere at random with small outputs."""
    for module in layer.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.02)
    if begin is None:
        return
    parts = begin.qkv_proj.parts
    for name in ("q_proj", "k_proj", "v_proj"):
        if name not in parts:  # of a layer with a mixer, or with keys and values of another
            continue
        mine, theirs = getattr(layer.self_attn, name).weight, begin.qkv_proj.weight[parts[name]]
        width = theirs.shape[1]  # the inputs of EAGLE-3 end with the hidden state
        copy_if_equal(mine[:, -width:], theirs)
    copy_if_equal(layer.self_attn.o_proj.weight, begin.o_proj.weight)
    if isinstance(begin.mlp, DenseMlp):
        gate_up = begin.mlp.gate_up_proj
        copy_if_equal(layer.mlp.gate_proj.weight, gate_up.weight[gate_up.parts["gate_proj"]])
        copy_if_equal(layer.mlp.up_proj.weight, gate_up.weight[gate_up.parts["up_proj"]])
        copy_if_equal(layer.mlp.down_proj.weight, begin.mlp.down_proj.weight)
    if begin.mlp_norm is not None:
        copy_if_equal(layer.post_attention_layernorm.weight, begin.mlp_norm)


def behind_final_norm(layer: PlainLayer, target: Target) -> None:
    """Scale a layer that has no norm at its input, and whose output the target's head reads as it is, to hidden states
    behind the target's final norm."""
    begin, final_norm = last_layer(target), target.final_norm.weight
    assert final_norm is not None, "every whole model has a norm before its head"
    input_norm = None if begin is None else begin.input_norm
    last = target.config.num_layers
    sample = torch.arange(min(SAMPLE, target.config.vocab_size), device=final_norm.device)[None]
    size = target.features(sample, (last,)).hidden[last].float().square().mean(-1).sqrt().median()
    attention, gain = layer.self_attn, final_norm.float()
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
        before = torch.ones_like(gain) if input_norm is None else input_norm.float()
        projection.weight.mul_(before / torch.where(gain.abs() < SMALL, SMALL, gain))
    for projection in (attention.o_proj, layer.mlp.down_proj):
        projection.weight.mul_((gain / size)[:, None])


def copy_norm(norm: nn.Module, weight: Tensor | None) -> None:
    """Where the target has one there."""
    assert isinstance(norm, Norm), "the layer has a norm there"
    if weight is not None:
        norm.weight.copy_(weight)


def copy_if_equal(mine: Tensor, theirs: Tensor) -> None:
    if mine.shape == theirs.shape:
        mine.copy_(theirs)
