"""The size of the KV cache: the configured one, or what the configured requests can fill at most."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.config import parse_bytes
from specserve.errors import ConfigError
from specserve.host_memory import free_host_memory
from specserve.kv.cache import KVCache
from specserve.kv.slots import num_blocks_for

if TYPE_CHECKING:
    from specserve.config import EngineConfig
    from specserve.models.decoder import DecoderModel

SHARE_OF_FREE_MEMORY = 0.25


class CacheShape(NamedTuple):
    """Layers that share a cache."""

    num_layers: int
    num_kv_heads: int
    head_dim: int


class DraftBytes(NamedTuple):
    """What draft layers take of the cache's memory, in bytes."""

    per_block: int
    fixed: int


NO_DRAFT_LAYERS = DraftBytes(0, 0)


def make_cache(config: EngineConfig, model: DecoderModel, drafts: DraftBytes = NO_DRAFT_LAYERS) -> KVCache:
    """The cache of the target's layers; draft layers take their part of the same memory. Raises ConfigError where
    memory is too small."""
    target = KVCache.bytes_per_block(
        model.num_layers, config.block_size, model.num_kv_heads, model.head_dim, model.dtype
    )
    per_block = target + drafts.per_block
    if config.kv_memory is not None:
        num_blocks = (parse_bytes(config.kv_memory) - drafts.fixed) // per_block
    else:
        wanted = config.max_num_seqs * num_blocks_for(model.max_model_len + config.max_draft_tokens, config.block_size)
        memory = int(free_memory(config.device) * SHARE_OF_FREE_MEMORY) - drafts.fixed
        num_blocks = min(wanted, memory // per_block)
    if num_blocks < 2:
        beside = f", and {drafts.fixed} bytes for draft tokens" if drafts.fixed else ""
        raise ConfigError(
            f"the KV cache needs at least two blocks of {per_block} bytes{beside}; got room for {max(num_blocks, 0)}. "
            "Give more with --kv-memory, or choose a smaller --block-size or --max-num-seqs."
        )
    shape = CacheShape(model.num_layers, model.num_kv_heads, model.head_dim)
    return allocate(config, shape, num_blocks, model.dtype, model.device)


def allocate(
    config: EngineConfig, shape: CacheShape, num_blocks: int, dtype: torch.dtype, device: torch.device
) -> KVCache:
    try:
        return KVCache(
            num_layers=shape.num_layers,
            num_blocks=num_blocks,
            block_size=config.block_size,
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            dtype=dtype,
            device=device,
        )
    except RuntimeError as error:  # what torch's allocators raise
        per_block = KVCache.bytes_per_block(*shape[:1], config.block_size, *shape[1:], dtype)
        raise ConfigError(
            f"no room for a KV cache of {num_blocks * per_block} bytes; about {free_memory(config.device)} are free. "
            "Choose a smaller --kv-memory."
        ) from error


def free_memory(device: str) -> int:
    """Bytes that an allocation could get now: of the device, or of the host within its control group."""
    if device == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    return free_host_memory()
