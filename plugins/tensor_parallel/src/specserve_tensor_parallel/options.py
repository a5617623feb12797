"""The options of tensor_parallel."""

from __future__ import annotations

from typing import Annotated

import msgspec

MAX_RANKS = 64


class TensorParallelOptions(msgspec.Struct, frozen=True, kw_only=True):
    ranks: Annotated[int, msgspec.Meta(ge=1, le=MAX_RANKS)] = 2
    """Processes that compute the model together, each its part; 1: the engine's own process alone."""
