"""The size of the KV cache: the configured one, or what the configured requests can fill at most."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from specserve.config import parse_bytes
from specserve.errors import ConfigError
from specserve.kv.cache import KVCache
from specserve.kv.slots import num_blocks_for

if TYPE_CHECKING:
    from specserve.config import EngineConfig
    from specserve.models.decoder import DecoderModel

SHARE_OF_FREE_MEMORY = 0.25


def make_cache(config: EngineConfig, model: DecoderModel, draft_layers: int) -> KVCache:
    """The cache of the target's layers and `draft_layers` more. Raises ConfigError where memory is too small."""
    layers = model.num_layers + draft_layers
    per_block = KVCache.bytes_per_block(layers, config.block_size, model.num_kv_heads, model.head_dim, model.dtype)
    if config.kv_memory is not None:
        num_blocks = parse_bytes(config.kv_memory) // per_block
    else:
        wanted = config.max_num_seqs * num_blocks_for(model.max_model_len + config.max_draft_tokens, config.block_size)
        num_blocks = min(wanted, int(free_memory(config.device) * SHARE_OF_FREE_MEMORY) // per_block)
    if num_blocks < 2:
        raise ConfigError(
            f"the KV cache needs at least two blocks of {per_block} bytes; got room for {num_blocks}. "
            "Give more with --kv-memory, or choose a smaller --block-size."
        )
    try:
        return KVCache(
            num_layers=layers,
            num_blocks=num_blocks,
            block_size=config.block_size,
            num_kv_heads=model.num_kv_heads,
            head_dim=model.head_dim,
            dtype=model.dtype,
            device=model.device,
        )
    except RuntimeError as error:  # what torch's allocators raise
        raise ConfigError(
            f"no room for a KV cache of {num_blocks * per_block} bytes; about {free_memory(config.device)} are free. "
            "Choose a smaller --kv-memory."
        ) from error


def free_memory(device: str) -> int:
    """Bytes that an allocation could get now: of the device, or of the host within its control group."""
    if device == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    free = [host_memory()]
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        if limit != "max":
            free.append(int(limit) - int(Path("/sys/fs/cgroup/memory.current").read_text()))
    except (OSError, ValueError):
        pass  # no control group of version 2, or one without a memory controller
    return max(min(free), 0)


def host_memory() -> int:
    """MemAvailable where the kernel reports it, else half of all memory."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
