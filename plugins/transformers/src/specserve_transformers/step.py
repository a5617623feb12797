"""The step that is computed: what modules within transformers' code need to know of it.

One thread computes a model's passes, one after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api.models import NO_BATCH

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from specserve.api.models import BatchRows

    Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
    """attend(layer, q [T, heads, d], k, v [T, kv_heads, d]) -> [T, heads, d]."""


class Step:
    """Of one model. `attend`: attention of the rows that are computed. `at`: which rows they are, with their adapters.
    `taps`: where hidden states are copied that drafters read, by layer."""

    def __init__(self) -> None:
        self.attend: Attend | None = None
        self.at: BatchRows = NO_BATCH
        self.taps: Mapping[int, Tensor] = {}
