"""The target's keys and values, for layers of draft models that make none of their own.

They are read where they lie in the paged cache, and never written. Letters: n queries, d the size of a head.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.request import Request
    from specserve.protocols.draft_model import TargetCosts


class TargetKeys(msgspec.Struct, frozen=True, kw_only=True):
    """Layers of a draft model that attend to keys and values of the target. They have the sizes of these."""

    num_heads: int
    """Of queries, in each layer."""
    scale: float
    """Of products of queries and keys; above 0."""
    sources: tuple[int, ...]
    """For each layer of the draft model the one of the target that it reads: a place among those that have keys and
    values, as in `sliding_windows` and `head_shapes` of the model."""
    sliding_windows: tuple[int | None, ...]
    """For each layer of the draft model: how many keys a query sees, the latest ones, at least 1; None for all."""


class KeyPlan(NamedTuple):
    """Which keys each query of a pass sees."""

    parts: tuple[object, ...]
    """The reader's own."""


class KeyReader(ABC):
    """Attention of queries to what the target has computed of requests: all committed tokens but the last, which has
    no key yet."""

    @abstractmethod
    def plan(self, requests: Sequence[Request]) -> KeyPlan:
        """What `attend` needs for one query of each of these, at least one of whose tokens is computed; several of a
        request where it is named several times. Valid until the next step."""

    @abstractmethod
    def attend(self, layer: int, q: Tensor, plan: KeyPlan) -> Tensor:
        """layer: of the draft model. q: [n, heads, d], rotated -> the same shape."""


class TargetKeyResources(NamedTuple):
    """What the engine gives a drafter that states `DrafterNeeds.target_keys`."""

    reader: KeyReader
    costs: TargetCosts | None = None
    """None where no planner knows them."""
    depth_is_planned: bool = False
    """Whether limits already bound chains to the depth that pays, by what passes cost."""
