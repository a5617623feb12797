"""Who moves an accepted tree path's tokens to the leading slots: CuPy on CUDA where it is installed, torch elsewhere.

torch's form is the core's own (`specserve.kv.cache.move_tokens`), the twin that the CuPy kernel is tested against.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from specserve.kv.cache import move_tokens

if TYPE_CHECKING:
    import torch

    from specserve.kv.cache import Mover


def mover_for(device: torch.device) -> Mover:
    """A backend puts it into `KVCache.mover` when it is built; CuPy's kernels are compiled here."""
    if device.type == "cuda" and importlib.util.find_spec("cupy") is not None:
        from specserve_hybrid_attn.cuda.cupy_kernels import compile_kernels, move_with_cupy

        compile_kernels()
        return move_with_cupy
    return move_tokens
