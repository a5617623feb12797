"""The numbers of the routing policy: the table [ray.routing]."""

from __future__ import annotations

from typing import Annotated

import msgspec

from specserve.errors import ConfigError
from specserve_checks.allowed_values import AtLeast, Between, check_fields


class PolicyOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    max_imbalance: Annotated[int, AtLeast(0)] = 8
    """A replica is not chosen for what it has while its load is above this plus `max_load_ratio` times another's."""
    max_load_ratio: Annotated[float, AtLeast(1)] = 1.5
    min_match: Annotated[float, Between(0, 1)] = 0.1
    """The share of a prompt that must be known for its prefix to count."""
    max_blocks: Annotated[int, AtLeast(0)] = 1_000_000
    """Blocks of text that are remembered, of all replicas together; about 200 bytes each."""
    block_bytes: Annotated[int, Between(16, 4096)] = 64
    """The size of a block of text."""
    bytes_per_token: Annotated[int, AtLeast(1)] = 4
    """By which the text that fits in a KV cache is guessed."""

    def __post_init__(self) -> None:
        check_fields(self, ConfigError)
