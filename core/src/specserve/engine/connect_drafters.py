"""Gives drafters with layers of their own a cache beside the target's, attention over it and a runtime.

Their part of every block, the hidden state that a block keeps and the blocks of draft tokens are within the KV memory
that the configuration allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

import torch

from specserve.draft_models.block_notes import BlockNotes
from specserve.draft_models.feeds import DraftMemory, scratch_blocks
from specserve.draft_models.runtime import DraftModelRuntime
from specserve.engine.choose_attention import make_draft_attention
from specserve.engine.size_cache import CacheShape, DraftBytes, allocate
from specserve.kv.cache import KVCache

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.config import EngineConfig
    from specserve.draft_models.recorded_pass import DraftGraphMaker
    from specserve.models.decoder import DecoderModel
    from specserve.plugins.host import PluginHost
    from specserve.protocols import Drafter, DraftLayers, KernelSet, ModelDrafter, TargetCosts


def shape_of(layers: DraftLayers) -> CacheShape:
    return CacheShape(len(layers.sliding_windows), layers.num_kv_heads, layers.head_dim)


def draft_bytes(config: EngineConfig, model: DecoderModel, drafters: Sequence[Drafter]) -> DraftBytes:
    """What the layers of all drafters take."""
    per_block = fixed = 0
    for drafter in drafters:
        if (layers := drafter.needs.layers) is not None:
            shape = shape_of(layers)
            keys = KVCache.bytes_per_block(*shape[:1], config.block_size, *shape[1:], model.dtype)
            state = len(drafter.needs.hidden_layers) * model.hidden_size * model.dtype.itemsize * layers.reads_hidden
            per_block += keys + state
            fixed += keys * num_scratch(config, layers)
    return DraftBytes(per_block, fixed)


def num_scratch(config: EngineConfig, layers: DraftLayers) -> int:
    return config.max_num_seqs * scratch_blocks(layers, config.block_size)


class DraftTarget(NamedTuple):
    """What drafters draft for."""

    model: DecoderModel
    kernels: KernelSet
    cache: KVCache
    costs: TargetCosts | None
    graphs: DraftGraphMaker | None
    """None where nothing is recorded."""
    depth_is_planned: bool
    """Whether the planner bounds the depth of chains."""


def connect_drafters(config: EngineConfig, host: PluginHost, drafters: Sequence[Drafter], target: DraftTarget) -> None:
    model, kernels, cache, costs, graphs, depth_is_planned = target
    for drafter in drafters:
        if (layers := drafter.needs.layers) is None:
            continue
        num_layers = model.num_layers + 1
        hidden_layers = [layer % num_layers for layer in drafter.needs.hidden_layers]
        num_blocks = cache.num_blocks + num_scratch(config, layers)
        own = allocate(config, shape_of(layers), num_blocks, model.dtype, model.device)
        attention = make_draft_attention(config, host, layers, own, model.device)
        states = None
        if layers.reads_hidden:
            width = len(hidden_layers) * model.hidden_size
            states = torch.zeros((cache.num_blocks, width), dtype=model.dtype, device=model.device)
        place = config.block_size, cache.num_blocks, model.device
        memory = DraftMemory(attention.backend, BlockNotes(states), *place, attention.graphs)
        runtime = DraftModelRuntime(layers, hidden_layers, kernels, memory, costs, graphs)
        runtime.depth_is_planned = depth_is_planned
        cast("ModelDrafter", drafter).connect(runtime)
