"""How the weights of a draft model are kept. It changes what is proposed and how long that takes, and no answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import ModelError
from specserve.models.quantised import to_eight_bits

if TYPE_CHECKING:
    from pathlib import Path

    from specserve.api import AdaptableProjection, KernelSet
    from specserve_eagle.options import DraftWeights


def finalize(projection: AdaptableProjection, kernels: KernelSet, weights: DraftWeights, path: Path) -> None:
    """`path`: of the draft model, for the error. A weight that is quantised already stays as it is."""
    if weights == "int8":
        try:
            projection.quantise(to_eight_bits)
        except ValueError:
            raise ModelError(
                f"{path}: eagle.weights=int8 rounds finite weights only, and the weight of {projection.name} has "
                "infinities or not-a-number. Set eagle.weights=auto, or get or train the draft model again."
            ) from None
    projection.finalize(kernels)
