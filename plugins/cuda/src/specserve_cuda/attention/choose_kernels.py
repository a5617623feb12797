"""Chooses the small kernels: CuPy's on CUDA where it is installed (extras cuda12, cuda13), torch's elsewhere.

The torch version of the KV moves is the core's (`specserve.api.attention.move_tokens`). Each CuPy kernel is tested
against its torch version.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from specserve.api.attention import move_tokens
from specserve_cuda.attention.tree_masks import TorchTrees

if TYPE_CHECKING:
    import torch

    from specserve.api.attention import Mover
    from specserve_cuda.attention.tree_masks import TreeKernels


def has_cupy(device: torch.device) -> bool:
    return device.type == "cuda" and importlib.util.find_spec("cupy") is not None


def mover_for(device: torch.device) -> Mover:
    """For `KVCache.mover`: moves an accepted path's keys and values to the leading slots. Compiles CuPy's kernels."""
    if has_cupy(device):
        from specserve_cuda.attention.cupy_kernels import compile_kernels, move_with_cupy

        compile_kernels()
        return move_with_cupy
    return move_tokens


def tree_kernels(device: torch.device) -> TreeKernels:
    if has_cupy(device):
        from specserve_cuda.attention.cupy_kernels import CupyTrees

        return CupyTrees()
    return TorchTrees()
