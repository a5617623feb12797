"""Where the native kernels serve. Imports nothing heavy: `specserve plugins` reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import Provides

if TYPE_CHECKING:
    from specserve.api import EngineConfig

DTYPES = ("bfloat16", "float32")


def why_not(config: EngineConfig) -> str | None:
    if config.device != "cpu":
        return f"it serves --device cpu, not {config.device}"
    if config.dtype not in ("auto", *DTYPES):
        return f"it computes in {' and '.join(DTYPES)}, not in {config.dtype}"
    return None


FITS = Provides("linear maps, norms, rotation and paged attention in C++, the same bits in every batch", why_not)
