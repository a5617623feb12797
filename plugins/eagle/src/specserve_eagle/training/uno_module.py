"""A draft adapter that can be trained: low-rank additions to a frozen target, which draft with it (UNO, 2026).

Behind a token of the text lie random ones, and each learns to say what comes at its place. Letters: B windows, T tokens
of each, A places of a window that are drafted from, K draft tokens from each, R = A (K - 1) rows of random tokens of a
window, H hidden size, V vocabulary, r rank.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn

from specserve.api import LowRankPart
from specserve.api.batch import LoraPlan, Segment
from specserve.api.models import NO_BATCH, BatchRows, LowRankDelta
from specserve_eagle.training.grouped_attention import KeysAndValues, attention_by_group, groups_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

    from specserve.api import AdaptableProjection
    from specserve.api.models import DecoderModel
    from specserve_eagle.training.target import Target
    from specserve_eagle.training.teacher import Features

BLOCKS = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj", "o_proj"), "self_attn"),
    **dict.fromkeys(("gate_proj", "up_proj", "down_proj"), "mlp"),
}
"""The linear maps of a layer that are adapted, and the block of it that each is in."""
FIRST_TOKEN = 1
"""The least random token."""


class UnoShape(NamedTuple):
    """The numbers of a draft adapter."""

    block_size: int
    """K. The first comes from the text's own token, which the target computes, and is always right."""
    mask_token: int
    """Random tokens are below it."""
    rank: int

    @property
    def num_proposed(self) -> int:
        return self.block_size


class Adapted(NamedTuple):
    """A linear map of the target, by its name in checkpoints."""

    projection: str
    outs: slice
    path: str
    in_features: int


class LowRank(nn.Module):
    """It begins as nothing."""

    def __init__(self, part: Adapted, rank: int) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.randn(rank, part.in_features) / part.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(part.outs.stop - part.outs.start, rank))


class DraftAdapterModule(nn.Module):
    """Low-rank additions to every linear map of the target's layers, whose projections get the deltas that add them."""

    kind = "uno"
    draft_ids = None

    def __init__(self, target: Target, shape: UnoShape) -> None:
        """Raises ModelError where the target's layers are not plain."""
        super().__init__()
        model = target.decoder
        self.shape, self.dtype = shape, model.dtype
        self.parts = adapted_parts(model.projections)
        self.pairs = nn.ModuleList(LowRank(part, shape.rank) for part in self.parts)
        self.reads = tuple(range(model.num_layers))
        """Of the target's hidden states: what every layer reads."""
        for name in {part.projection for part in self.parts}:
            projection = model.projections[name]
            if not any(isinstance(delta, LowRankDelta) for delta in projection.deltas):
                projection.add_delta(LowRankDelta(name, model.kernels))

    def rows(self, count: int, dtype: torch.dtype) -> BatchRows:
        """So many rows, all with the adapter."""
        weights: dict[str, list[LowRankPart]] = {}
        for part, pair in zip(self.parts, self.pairs, strict=True):
            assert isinstance(pair, LowRank)
            own = LowRankPart(pair.down.to(dtype), pair.up.to(dtype), part.outs)
            weights.setdefault(part.projection, []).append(own)
        segment = Segment(0, count, {name: tuple(each) for name, each in weights.items()})
        return BatchRows(slice(0, count), LoraPlan([segment], self.shape.rank))

    def noise(self, ids: Tensor, num_places: int, step: int = 0) -> Tensor:
        """ids: [B, T] -> random tokens, [B, A, K - 1]. Drawn as `sample_anchors` draws."""
        generator = torch.Generator().manual_seed(int(ids.sum()) + step)
        size = len(ids), num_places, self.shape.block_size - 1
        return torch.randint(FIRST_TOKEN, self.shape.mask_token, size, generator=generator).to(ids.device)


def adapted_parts(projections: Mapping[str, AdaptableProjection]) -> list[Adapted]:
    found = []
    for name, projection in projections.items():
        layer = name.rpartition(".")[0]
        found += [
            Adapted(name, outs, f"model.{layer}.{BLOCKS[part]}.{part}", projection.in_features)
            for part, outs in projection.parts.items()
            if part in BLOCKS
        ]
    return found


def noise_logits(
    module: DraftAdapterModule, target: Target, features: Features, anchors: Tensor, noise: Tensor
) -> Iterator[Tensor]:
    """Of the draft tokens behind the first, K - 1 times [B, A, V]: those at place i, [:, a], draft the token
    anchors[a] + i + 2 of the text. features: of all that `reads` names; anchors: [A]; noise: [B, A, K - 1]."""
    with torch.autocast(noise.device.type, enabled=False):  # the arithmetic that serves it
        states = noise_states(module, target.decoder, features, anchors, noise)
    yield from place_logits(target.decoder, states)


def place_logits(model: DecoderModel, states: Tensor) -> Iterator[Tensor]:
    """states: [B, A, K - 1, H] -> K - 1 times [B, A, V], one place at a time: logits of all are large."""
    for place in range(states.shape[2]):
        rows = states[:, :, place]
        with torch.autocast(rows.device.type, enabled=False):
            logits = model.lm_head(rows.flatten(0, 1)).view(*rows.shape[:2], -1)
        yield logits


def noise_states(
    module: DraftAdapterModule, model: DecoderModel, features: Features, anchors: Tensor, noise: Tensor
) -> Tensor:
    """[B, A, K - 1, H], behind the final norm."""
    (B, T, _), width = features.final.shape, noise.shape[2]
    positions = (anchors[:, None] + 1 + torch.arange(width, device=anchors.device)).flatten()
    R = len(positions)
    of_text = model.rotations(torch.arange(T, device=anchors.device).repeat(B))
    of_rows = model.rotations(positions.repeat(B))
    groups = {
        window: groups_of(anchors, width, partial(noise_mask, width=width, window=window))
        for window in set(model.sliding_windows)
    }
    at = module.rows(B * R, model.dtype)
    x = model.embed(noise.flatten())
    for layer in range(model.num_layers):
        with torch.no_grad():
            text = model.attention_input(layer, features.hidden[layer].flatten(0, 1), of_text[layer], NO_BATCH)
        own = model.attention_input(layer, x, of_rows[layer], at)
        before, mine = (
            KeysAndValues(*(each.reshape(B, -1, *each.shape[1:]).transpose(1, 2) for each in (part.k, part.v)))
            for part in (text, own)
        )
        q = own.q.reshape(B, R, *own.q.shape[1:]).transpose(1, 2)
        attended = attention_by_group(q, before, mine, groups[model.sliding_windows[layer]], model.scale)
        x = model.attention_output(layer, x, attended.transpose(1, 2).flatten(0, 1), at, own.gates)
    assert model.final_norm is not None, "a whole model has a final norm"
    return model.kernels.rms_norm(x, model.final_norm, model.config.norm_eps).view(*noise.shape, -1)


def noise_mask(anchors: Tensor, length: int, width: int, window: int | None) -> Tensor:
    """[R, length + R] bool, True where a random token sees the text's token or the other random token: those before
    it, of the text up to its anchor and of its own draft."""
    device = anchors.device
    begins = anchors.repeat_interleave(width)
    positions = (anchors[:, None] + 1 + torch.arange(width, device=device)).flatten()
    of_text = torch.arange(length, device=device)
    same = begins[:, None] == begins
    sees = torch.cat((of_text <= begins[:, None], same & (positions <= positions[:, None])), 1)
    if window is None:
        return sees
    distance = positions[:, None] - torch.cat((of_text, positions))
    return sees & (distance < window)
