"""A whole forward pass out of a DecoderModel's pieces, with attention written out: one softmax over a full matrix."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from specserve.engine.model_roles import installed_formats
from specserve.kernels.torch_kernels import TorchKernels
from specserve.models.gated_delta_net import GatedDeltaNet
from specserve.models.loader import ModelLoader
from specserve.models.projection import BatchRows
from specserve.models.short_conv import ShortConv

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

    from specserve.models.decoder import DecoderModel
    from specserve.models.weight_format import WeightFormat

TILE = 32


@cache
def formats() -> list[WeightFormat]:
    return installed_formats()


def load(path: Path, on_progress=None, **options) -> DecoderModel:
    """By the engine's families, in every format that an installed plugin reads."""
    loader = ModelLoader(formats=formats(), on_progress=on_progress)
    return loader.load(path, kernels=TorchKernels(), **options)


def forward(model: DecoderModel, token_ids: Sequence[int]) -> Tensor:
    """Logits of every position, [T, V]."""
    num_rows = -(-len(token_ids) // TILE) * TILE
    ids = torch.tensor([*token_ids, *[0] * (num_rows - len(token_ids))])
    positions = torch.arange(num_rows).clamp(max=model.max_model_len - 1)
    tiles = [slice(start, start + TILE) for start in range(0, num_rows, TILE)]
    places = [BatchRows(tile, None) for tile in tiles]
    rotations = [model.rotations(positions[tile]) for tile in tiles]
    x = torch.cat([model.embed(ids[tile]) for tile in tiles])
    given = [model.layer_inputs(x[at.rows], ids[at.rows], at) for at in places]
    keys_values = {}
    for layer in range(model.num_layers):
        gates = [None] * len(tiles)
        if isinstance(model.layers[layer].mixer, ShortConv):
            mixed = convolved(model, layer, torch.cat([model.mixer_input(layer, x[at.rows], at) for at in places]))
        elif isinstance(model.layers[layer].mixer, GatedDeltaNet):
            mixed = remembered(model, layer, torch.cat([model.mixer_input(layer, x[at.rows], at) for at in places]))
        else:
            pieces = [
                model.attention_input(layer, x[at.rows], r[layer], at) for at, r in zip(places, rotations, strict=True)
            ]
            gates = [piece.gates for piece in pieces]
            q, k, v = (torch.cat(parts) for parts in zip(*(piece[:3] for piece in pieces), strict=True))
            keys_values[layer] = k, v = keys_values.get(model.kv_sources.get(layer), (k, v))
            mixed = attention(model, model.cache_layers[layer], q, k, v)
        outputs = [
            model.attention_output(layer, x[tile], mixed[tile], at, gate)
            for tile, at, gate in zip(tiles, places, gates, strict=True)
        ]
        outputs = [
            model.layer_end(layer, out, at, None if inputs is None else inputs[layer])
            for out, at, inputs in zip(outputs, places, given, strict=True)
        ]
        x = torch.cat(outputs)
    return torch.cat([model.head(x[t]) for t in tiles])[: len(token_ids)]


def convolved(model: DecoderModel, layer: int, rows: Tensor) -> Tensor:
    """rows: [T, 3 H], of one sequence -> [T, H]."""
    mixer = model.layers[layer].mixer
    b, c, x = rows.chunk(3, -1)
    shifted = F.pad(b * x, (0, 0, mixer.reach, 0)).float()
    taps = [shifted[tap : tap + len(rows)] * weight for tap, weight in enumerate(mixer.weight)]
    return c * (sum(taps) + (0 if mixer.bias is None else mixer.bias)).to(rows.dtype)


def remembered(model: DecoderModel, layer: int, rows: Tensor) -> Tensor:
    """rows: [T, n], of one sequence -> [T, V dv]. The published recurrence, in float64."""
    net = model.layers[layer].mixer
    sizes = net.config
    V, dk, dv = sizes.value_heads, sizes.key_dim, sizes.value_dim
    given, b, a, z = rows.double().split_with_sizes((sizes.channels, V, V, V * dv), 1)
    shifted = F.pad(given, (0, 0, sizes.taps - 1, 0))
    taps = [shifted[sizes.taps - 1 - tap :][: len(rows)] * weight for tap, weight in enumerate(net.taps.double())]
    q, k, v = F.silu(sum(taps)).split_with_sizes((sizes.key_heads * dk, sizes.key_heads * dk, V * dv), 1)
    q, k = (F.normalize(each.view(-1, sizes.key_heads, dk), dim=-1, eps=1e-6) for each in (q, k))
    q, k = (each.repeat_interleave(V // sizes.key_heads, 1) for each in (q / dk**0.5, k))
    decay, S = (net.rate * F.softplus(a + net.dt_bias)).exp(), torch.zeros(V, dk, dv, dtype=torch.float64)
    outs = []
    for t in range(len(rows)):
        S = S * decay[t, :, None, None]
        delta = (v[t].view(V, dv) - torch.einsum("hkv,hk->hv", S, k[t])) * b[t].sigmoid()[:, None]
        S = S + torch.einsum("hk,hv->hkv", k[t], delta)
        outs.append(torch.einsum("hkv,hk->hv", S, q[t]))
    normed = F.rms_norm(torch.stack(outs), (dv,), net.norm.double(), sizes.norm_eps)
    return (normed.flatten(1) * F.silu(z)).to(rows.dtype)


def attention(model: DecoderModel, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """layer: among those with attention; q: [T, heads, d]; k, v: [T, kv_heads, d] -> [T, heads, d]."""
    window, cap, sinks = model.sliding_windows[layer], model.soft_caps[layer], model.sinks[layer]
    groups = model.num_heads // k.shape[1]
    q, k, v = (x.float().transpose(0, 1) for x in (q, k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)))
    distance = torch.arange(q.shape[1])[:, None] - torch.arange(q.shape[1])
    hidden = distance < 0 if window is None else (distance < 0) | (distance >= window)
    scores = q @ k.transpose(1, 2) * model.scale
    scores = (scores if cap is None else (scores / cap).tanh() * cap).masked_fill(hidden, float("-inf"))
    if sinks is not None:
        scores = torch.cat((scores, sinks[:, None, None].expand(-1, q.shape[1], 1)), -1)
    return (scores.softmax(-1)[..., : q.shape[1]] @ v).transpose(0, 1).to(model.dtype)
