"""Adapters as data for kernel sets, the low-rank parts of LoRA (Hu et al., 2021), and what finds the rows of each.

Letters: r rank.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.batch.lora_plan import LoraPlan


class LowRankPart(NamedTuple):
    """Adds (x @ down.T) @ up.T to the outputs `outs` of a projection."""

    down: Tensor
    """[r, in]"""
    up: Tensor
    """[len(outs), r], with the adapter's scaling multiplied in."""
    outs: slice


AdapterWeights = Mapping[str, tuple[LowRankPart, ...]]
"""By projection name; a fused projection has a part for each of its own that the adapter changes. The `outs` of a
projection's parts do not overlap: a device adds them at the same time."""


class LoraPlanner(ABC):
    """Finds the rows of each adapter in a batch."""

    max_adapters: int = 0
    """How many adapters may be in use at once: `max_lora` in /metrics."""

    @abstractmethod
    def plan(self, batch: Batch) -> LoraPlan | None:
        """`Batch.lora`, from its query lengths and the adapters of its spans; None where no row has an adapter.

        Called when the batch is built. A request whose adapter is not found must not be served by the base model:
        raise.
        """
