"""How many heads keys and values of a layer have, and of how many numbers."""

from __future__ import annotations

from typing import NamedTuple


class HeadShape(NamedTuple):
    """Of one layer."""

    num_kv_heads: int
    head_dim: int
