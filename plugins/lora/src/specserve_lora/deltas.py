"""The additions of adapters to a model's projections: made once, whichever plugins of this distribution are enabled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api.models import LowRankDelta
from specserve_lora.modules import HEAD

if TYPE_CHECKING:
    from specserve.api import AdaptableModel


def add_deltas(model: AdaptableModel) -> None:
    for name, projection in model.projections.items():
        if name != HEAD and not any(isinstance(delta, LowRankDelta) for delta in projection.deltas):
            projection.add_delta(LowRankDelta(name, model.kernels))
