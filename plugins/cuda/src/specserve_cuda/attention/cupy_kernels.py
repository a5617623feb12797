"""The tree kernels and the KV moves on CUDA, by CuPy: compiled at run time, launched on torch's current stream, over
torch's memory (DLPack, no copy).

tests/cuda/test_cuda_sources.py runs the sources on the host. Imports CuPy; only CUDA builds with it installed import
this module.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import cupy
import torch

from specserve.api.batch import to_device
from specserve_cuda.attention.cuda_sources import TREES, moves_source, word_bytes
from specserve_cuda.attention.tree_masks import TreeKernels

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from specserve_cuda.attention.tree_masks import MaskRows

THREADS = 128
WORD_DTYPES = {8: torch.int64, 4: torch.int32, 2: torch.int16}


@cache
def kernel(source: str, name: str) -> Any:
    return cupy.RawKernel(source, name)


def compile_kernels() -> None:
    """Compiles all kernels at start-up, so that a CuPy that cannot compile fails there."""
    for name in ("tree_paths", "tree_ancestors", "tree_mask"):
        kernel(TREES, name).compile()
    for size in WORD_DTYPES:
        kernel(moves_source(size), "move_tokens").compile()


def stream_like(stream: torch.cuda.Stream) -> Any:
    """CuPy 14 takes torch's stream itself, of a torch that has CUDA's stream protocol; before them, its address."""
    if hasattr(cupy.cuda.Stream, "from_external") and hasattr(stream, "__cuda_stream__"):
        return cupy.cuda.Stream.from_external(stream)
    return cupy.cuda.ExternalStream(stream.cuda_stream)


@contextmanager
def torch_stream(device: torch.device) -> Iterator[None]:
    """CuPy launches on torch's current stream of the device."""
    with (
        cupy.cuda.Device(device.index),
        stream_like(torch.cuda.current_stream(device)),
    ):
        yield


def launch(source: str, name: str, grid: tuple[int, ...], *arguments: Tensor | int) -> None:
    """Tensors are passed as arrays over the same memory, integers as 64 bits: what the kernels take."""
    device = next(argument.device for argument in arguments if isinstance(argument, torch.Tensor))
    with torch_stream(device):
        converted = [cupy.from_dlpack(a) if isinstance(a, torch.Tensor) else cupy.int64(a) for a in arguments]
        kernel(source, name)(grid, (THREADS,), tuple(converted))


def grid_for(threads: int) -> tuple[int]:
    return (max(1, -(-threads // THREADS)),)


class CupyTrees(TreeKernels):
    """What `TorchTrees` computes, in one launch per kernel."""

    def paths(self, parents: Tensor, depths: Tensor, slots: Tensor, max_depth: int) -> Tensor:
        out = slots.new_empty(len(parents), max_depth)
        arguments = (parents.contiguous(), depths.contiguous(), slots.contiguous(), out, len(parents), max_depth)
        launch(TREES, "tree_paths", grid_for(len(parents)), *arguments)
        return out

    def ancestors(self, parents: Tensor, depths: Tensor, tree_starts: Tensor, num_words: int, max_depth: int) -> Tensor:
        bits = parents.new_empty(len(parents), num_words)
        arguments = (parents.contiguous(), tree_starts.contiguous(), bits, len(parents), num_words)
        launch(TREES, "tree_ancestors", grid_for(len(parents)), *arguments)
        return bits

    def mask(self, rows: MaskRows, ancestors: Tensor, depths: Tensor, window: int, size: int) -> Tensor:
        mask = torch.empty(size, dtype=torch.uint8, device=rows.offsets.device)
        tables = [table.contiguous() for table in (*rows, ancestors, depths)]
        grid = (8, len(rows.offsets))
        launch(TREES, "tree_mask", grid, *tables, mask, ancestors.shape[1], window)
        return mask.view(torch.bool)


def move_with_cupy(data: Tensor, source: Sequence[int], target: Sequence[int]) -> None:
    """data: [layers, 2, slots, kv_heads, head_dim]; as `specserve.api.attention.move_tokens`, in one launch."""
    planes, slots = data.shape[0] * data.shape[1], data.shape[2]
    token_bytes = data.shape[3] * data.shape[4] * data.itemsize
    size = word_bytes(token_bytes)
    words = data.view(planes, slots, -1).view(WORD_DTYPES[size])
    width = token_bytes // size
    staging = words.new_empty(planes, len(source), width)
    sources, targets = to_device([source, target], data.device)
    arguments = (words, staging, sources, targets, len(source), planes, slots, width)
    launch(moves_source(size), "move_tokens", grid_for(planes * width), *arguments)
