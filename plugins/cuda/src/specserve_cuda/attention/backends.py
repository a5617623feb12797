"""The plugin's backends for CUDA. Triton, CuPy and FlashInfer are imported when a backend that needs them is built."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from specserve_cuda.attention.flash import FlashFactory
from specserve_cuda.attention.flashinfer_paged import FlashInferFactory
from specserve_cuda.attention.paged import PagedFactory

if TYPE_CHECKING:
    from specserve.api import AttentionFactory


def cuda_backends() -> list[AttentionFactory]:
    """FlashInfer's is offered where the package is installed (extra `flashinfer`)."""
    factories: list[AttentionFactory] = [PagedFactory(), FlashFactory()]
    if importlib.util.find_spec("flashinfer") is not None:
        factories.append(FlashInferFactory())
    return factories
