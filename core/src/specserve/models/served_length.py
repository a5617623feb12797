"""The context length that a model is served with, and what follows from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.errors import ModelError
from specserve.models.rope import supported_length

if TYPE_CHECKING:
    from specserve.models.config import ModelConfig

DEFAULT_LEN_LIMIT = 32768
"""The default context length is at most this: a longer one must be configured."""


def resolve_length(config: ModelConfig, max_model_len: int | None) -> int:
    """The context length to serve: what was asked for, or the model's own, at most 32768."""
    longest = supported_length(config)
    if max_model_len is None:
        return min(longest, DEFAULT_LEN_LIMIT)
    if not 1 <= max_model_len <= longest:
        raise ModelError(
            f"max_model_len must be between 1 and {longest}, which is what the model's config.json supports; "
            f"got {max_model_len}. Ask for less, or scale the rotation in config.json (rope_parameters)."
        )
    return max_model_len


def without_idle_scale(config: ModelConfig, length: int) -> ModelConfig:
    """Without a scale of queries that is 1 at every position of such a context."""
    scale = config.query_scale
    return config if scale is None or scale.length < length else msgspec.structs.replace(config, query_scale=None)
