"""Where the CUDA kernels serve. Imports nothing heavy: `specserve plugins` reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import Provides

if TYPE_CHECKING:
    from specserve.api import EngineConfig


def why_not(config: EngineConfig) -> str | None:
    return None if config.device == "cuda" else f"it serves --device cuda, not {config.device}"


FITS = Provides("the model's arithmetic, sampling and paged attention in Triton, and CUDA graphs", why_not)
