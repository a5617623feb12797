"""Resolves what a configuration leaves open: every "auto" and None that depends on this machine or the checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import torch

from specserve.errors import ConfigError
from specserve.host_cores import cores_with_time

if TYPE_CHECKING:
    from specserve.config import EngineConfig


def resolve_config(config: EngineConfig, checkpoint_dtype: str) -> EngineConfig:
    """The same configuration with threads and dtype resolved. ConfigError where this machine cannot serve it."""
    threads = config.threads or cores_with_time()
    dtype = checkpoint_dtype if config.dtype == "auto" else config.dtype
    return msgspec.structs.replace(config, threads=threads, dtype=dtype, graphs=config.graph_mode)


def find_device(name: str) -> torch.device:
    """The torch device; ConfigError where torch has none of that name."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device cuda: torch sees no CUDA device here. Use --device cpu, or install a CUDA build.")
    return torch.device(name)
