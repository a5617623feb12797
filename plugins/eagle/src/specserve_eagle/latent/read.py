"""Reads the maps of a layer with multi-head latent attention, with their numbers where the engine expects them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from specserve_eagle.head_reader import in_halves
from specserve_eagle.latent.decoder import LatentMaps

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.api.models import Projection
    from specserve_eagle.head_reader import HeadReader
    from specserve_eagle.latent.config import LatentConfig


def read_input(reader: HeadReader, layer: str, config: LatentConfig) -> Projection:
    """What is made of hidden states. layer: how canonical names of its tensors begin."""
    keys = reader.tensor(f"{layer}kv_a_proj")
    keys = torch.cat((keys[: config.rank], in_halves(keys[config.rank :], config.rotated, config.rotated)))
    if config.query_rank is None:
        queries = rotated_first(reader.tensor(f"{layer}q_proj"), config)
    else:
        queries = reader.tensor(f"{layer}q_a_proj")
    return reader.made(f"{layer}qkv_proj", torch.cat((queries, keys)))


def read_latent(reader: HeadReader, layer: str, config: LatentConfig) -> LatentMaps:
    """What is made of that."""
    query_norm = queries = None
    if config.query_rank is not None:
        query_norm = reader.tensor(f"{layer}q_a_norm")
        queries = reader.made(f"{layer}q_b_proj", rotated_first(reader.tensor(f"{layer}q_b_proj"), config))
    return LatentMaps(
        config,
        query_norm=query_norm,
        queries=queries,
        norm=reader.tensor(f"{layer}kv_a_norm"),
        keys_values=reader.projection(f"{layer}kv_b_proj"),
    )


def rotated_first(rows: Tensor, config: LatentConfig) -> Tensor:
    """rows: [h * d, n], of each head those that are rotated last, in pairs; put first, in halves."""
    heads = rows.view(-1, config.head_dim, rows.shape[1])
    rotated = in_halves(heads[:, config.plain :].flatten(0, 1), config.rotated, config.rotated)
    return torch.cat((rotated.view(len(heads), config.rotated, -1), heads[:, : config.plain]), 1).flatten(0, 1)


def read_output(reader: HeadReader, name: str, config: LatentConfig) -> Projection:
    """From values that are padded to d numbers."""
    weight = reader.tensor(name)
    padded = F.pad(weight.view(len(weight), -1, config.value), (0, config.head_dim - config.value))
    return reader.made(name, padded.flatten(1))
