"""Gives drafters with layers of their own a cache beside the target's and attention over it.

Their part of every block, the hidden state that a block keeps and the blocks of draft tokens are within the KV memory
that the configuration allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.engine.choose_attention import AttentionChoice, choose_draft_attention
from specserve.engine.size_cache import DraftBytes, allocate
from specserve.kv.slots import num_blocks_for
from specserve.protocols import DraftResources

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from specserve.config import EngineConfig
    from specserve.kv.cache import KVCache
    from specserve.models.runner import Runner
    from specserve.models.served_model import ServedModel
    from specserve.plugins.host import PluginHost
    from specserve.protocols import Drafter, DraftLayers, DraftPlanner


class LayeredDrafter(NamedTuple):
    """A drafter with layers of its own, and the attention over them."""

    drafter: Drafter
    layers: DraftLayers
    attention: AttentionChoice


def find_layered(config: EngineConfig, host: PluginHost, drafters: Sequence[Drafter]) -> list[LayeredDrafter]:
    return [
        LayeredDrafter(drafter, layers, choose_draft_attention(config, host, layers))
        for drafter in drafters
        if (layers := drafter.needs.layers) is not None
    ]


def draft_bytes(config: EngineConfig, model: ServedModel, layered: Sequence[LayeredDrafter]) -> DraftBytes:
    """What the layers of all drafters take."""
    per_block = fixed = 0
    for drafter, layers, attention in layered:
        keys = attention.cache_shape(model.dtype, layers.token_widths).bytes_per_block(config.block_size)
        state = len(drafter.needs.hidden_layers) * model.hidden_size * model.dtype.itemsize * layers.reads_hidden
        per_block += keys + state
        fixed += keys * num_scratch(config, layers)
    return DraftBytes(per_block, fixed)


def num_scratch(config: EngineConfig, layers: DraftLayers) -> int:
    return config.max_num_seqs * scratch_blocks(config, layers)


def scratch_blocks(config: EngineConfig, layers: DraftLayers) -> int:
    """Blocks that hold the draft rows of one request."""
    return num_blocks_for(layers.max_draft_rows, config.block_size)


class DraftTarget(NamedTuple):
    """What drafters draft for."""

    cache: KVCache
    planner: DraftPlanner
    runner: Runner
    cached_blocks: Callable[[Sequence[bytes]], Sequence[int]]
    """As in `DraftResources`."""


def connect_drafters(config: EngineConfig, layered: Sequence[LayeredDrafter], target: DraftTarget) -> None:
    for drafter, layers, choice in layered:
        drafter.connect(resources(config, drafter, layers, choice, target))


def resources(
    config: EngineConfig, drafter: Drafter, layers: DraftLayers, choice: AttentionChoice, target: DraftTarget
) -> DraftResources:
    cache, planner, runner, cached_blocks = target
    model = runner.model
    num_layers = model.num_layers + 1
    hidden_layers = tuple(layer % num_layers for layer in drafter.needs.hidden_layers)
    num_blocks = cache.num_blocks + num_scratch(config, layers)
    shape = choice.cache_shape(model.dtype, layers.token_widths)
    own = allocate(config, shape, num_blocks, model.device)
    attention = choice.build(own, model.device)
    states = None
    if layers.reads_hidden:
        width = len(hidden_layers) * model.hidden_size
        states = torch.zeros((cache.num_blocks, width), dtype=model.dtype, device=model.device)
    return DraftResources(
        kernels=runner.kernels,
        attention=attention.backend,
        block_size=config.block_size,
        first_scratch=cache.num_blocks,
        scratch_blocks=scratch_blocks(config, layers),
        device=model.device,
        token_states=own.token_states,
        hidden_layers=hidden_layers,
        states=states,
        costs=planner.costs,
        depth_is_planned=planner.bounds_depth,
        graphs=runner.draft_graphs(attention.backend, attention.graphs),
        cached_blocks=cached_blocks,
    )
