"""Adapters as data that kernel sets compute: the low-rank parts of LoRA (Hu et al., 2021). Letters: r rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


class LowRankPart(NamedTuple):
    """Adds (x @ down.T) @ up.T to the outputs `outs` of a projection."""

    down: Tensor
    """[r, in]"""
    up: Tensor
    """[len(outs), r], with the adapter's scaling multiplied in."""
    outs: slice


AdapterWeights = Mapping[str, tuple[LowRankPart, ...]]
"""By projection name; a fused projection has a part for each of its own that the adapter changes."""
