"""Which form of the small kernels a device gets: CuPy's on CUDA where it is installed (extras cuda12, cuda13), torch's
elsewhere.

For the moves of KV torch's form is the core's own (`specserve.kv.cache.move_tokens`). Each torch form is the twin that
the CuPy kernel is tested against.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from specserve.kv.cache import move_tokens
from specserve_hybrid_attn.cuda.tree_masks import TorchTrees

if TYPE_CHECKING:
    import torch

    from specserve.kv.cache import Mover
    from specserve_hybrid_attn.cuda.tree_masks import TreeKernels


def has_cupy(device: torch.device) -> bool:
    return device.type == "cuda" and importlib.util.find_spec("cupy") is not None


def mover_for(device: torch.device) -> Mover:
    """Moves an accepted tree path's tokens to the leading slots. A backend puts it into `KVCache.mover` when it is
    built; CuPy's kernels are compiled here."""
    if has_cupy(device):
        from specserve_hybrid_attn.cuda.cupy_kernels import compile_kernels, move_with_cupy

        compile_kernels()
        return move_with_cupy
    return move_tokens


def tree_kernels(device: torch.device) -> TreeKernels:
    if has_cupy(device):
        from specserve_hybrid_attn.cuda.cupy_kernels import CupyTrees

        return CupyTrees()
    return TorchTrees()
