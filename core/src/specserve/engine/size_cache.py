"""The size of the KV cache: the configured one, or what the configured requests can fill at most."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.config import parse_bytes
from specserve.errors import ConfigError
from specserve.host_memory import FreeMemory, free_host_memory
from specserve.kv.cache import KVCache
from specserve.kv.slots import num_blocks_for

if TYPE_CHECKING:
    from specserve.config import EngineConfig
    from specserve.models.served_model import ServedModel
    from specserve.protocols import AttentionSpec

SHARE_OF_FREE_MEMORY = 0.25


class CacheShape(NamedTuple):
    """Layers that share a cache."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    """Elements per head and token."""
    dtype: torch.dtype
    token_widths: tuple[int, ...] = ()
    """What each layer without attention keeps of a token, in numbers of the model's dtype."""
    token_dtype: torch.dtype = torch.float32
    others: tuple[CacheShape, ...] = ()
    """Of further layers, whose heads have other sizes, under the same block ids."""

    @classmethod
    def of(cls, layers: AttentionSpec, dtype: torch.dtype, token_widths: tuple[int, ...] = ()) -> CacheShape:
        """dtype: the model's."""
        layout = layers.kv_layout
        kept = dtype if layout.dtype is None else getattr(torch, layout.dtype)
        head_dim = layers.head_dim + layout.beside
        return cls(len(layers.sliding_windows), layers.num_kv_heads, head_dim, kept, token_widths, dtype)

    def bytes_per_block(self, block_size: int) -> int:
        keys = KVCache.bytes_per_block(self.num_layers, block_size, self.num_kv_heads, self.head_dim, self.dtype)
        keys += sum(other.bytes_per_block(block_size) for other in self.others)
        return keys + sum(self.token_widths) * block_size * self.token_dtype.itemsize


class DraftBytes(NamedTuple):
    """What drafts take of the cache's memory, and blocks of the target's layers."""

    per_block: int
    """Bytes of draft models' layers for each block of requests."""
    fixed: int
    """Bytes of draft models' layers for draft tokens, and of the logits that the target gives drafters."""
    target_blocks: int = 0
    """For draft tokens that drafters compute with the target."""


NO_DRAFT_LAYERS = DraftBytes(0, 0)


def make_cache(
    config: EngineConfig, model: ServedModel, shape: CacheShape, drafts: DraftBytes = NO_DRAFT_LAYERS
) -> KVCache:
    """The cache of the target's layers; draft layers take their part of the same memory. Raises ConfigError where
    memory is too small."""
    free = int(free_memory(config.device) * model.part.memory_share)
    count = num_blocks(config, model.max_model_len, shape, free, drafts)
    return allocate(config, shape, model.part.agree_on_blocks(count), model.device, drafts.target_blocks)


def num_blocks(
    config: EngineConfig, max_model_len: int, shape: CacheShape, free: int, drafts: DraftBytes = NO_DRAFT_LAYERS
) -> int:
    """How many blocks the cache has where `free` bytes are free. Raises ConfigError where memory is too small."""
    own = shape.bytes_per_block(config.block_size)
    per_block, fixed = own + drafts.per_block, drafts.fixed + own * drafts.target_blocks
    if config.kv_memory is not None:
        count = (parse_bytes(config.kv_memory) - fixed) // per_block
    else:
        wanted = config.max_num_seqs * num_blocks_for(max_model_len + config.max_draft_tokens, config.block_size)
        count = min(wanted, (int(free * SHARE_OF_FREE_MEMORY) - fixed) // per_block)
    if count < 2:
        beside = f", and {fixed} bytes for draft tokens" if fixed else ""
        smaller = "--block-size or --max-num-seqs"
        if fixed:
            smaller = "--max-draft-tokens, --max-num-batched-tokens, --block-size or --max-num-seqs"
        raise ConfigError(
            f"the KV cache needs at least two blocks of {per_block} bytes{beside}; got room for {max(count, 0)}. "
            f"Give more with --kv-memory, or choose a smaller {smaller}."
        )
    return count


def allocate(
    config: EngineConfig, shape: CacheShape, count: int, device: torch.device, num_scratch: int = 0
) -> KVCache:
    """A cache of `count` blocks for requests."""

    def cache_of(shape: CacheShape) -> KVCache:
        return KVCache(
            num_layers=shape.num_layers,
            num_blocks=count,
            block_size=config.block_size,
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            dtype=shape.dtype,
            device=device,
            token_widths=shape.token_widths,
            token_dtype=shape.token_dtype,
            num_scratch=num_scratch,
        )

    try:
        cache = cache_of(shape)
        cache.others = tuple(map(cache_of, shape.others))
        return cache
    except RuntimeError as error:  # what torch's allocators raise
        wanted = (count + num_scratch) * shape.bytes_per_block(config.block_size)
        raise ConfigError(
            f"no room for a KV cache of {wanted} bytes; {free_memory_on(config.device)}. Choose a smaller --kv-memory."
        ) from error


def free_memory(device: str) -> int:
    """Bytes that an allocation could get now: of the device, or of the host within the limits of this process."""
    return free_memory_on(device).num_bytes


def free_memory_on(device: str) -> FreeMemory:
    if device == "cuda":
        return FreeMemory(int(torch.cuda.mem_get_info()[0]), "of the device")
    return free_host_memory()
