"""The CUDA kernel set: the row-wise arithmetic of a decoder as Triton kernels.

Tiles are fixed and sums run in one order, so that a row's bits depend on its own values alone and the runner needs no
padding. Knows nothing about models, weights or batches. Imports Triton; only a start on CUDA imports this module.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import torch

from specserve.api import KernelSet
from specserve.api.models import GatedDeltaNet, ShortConv
from specserve_cuda.kernels.delta_net import SharedTables, TritonDeltaNet
from specserve_cuda.kernels.delta_net_tables import LoadedTables, StateShape
from specserve_cuda.kernels.forward_pass import fuse
from specserve_cuda.kernels.gates import gated
from specserve_cuda.kernels.linear import TILES, TritonLinear
from specserve_cuda.kernels.loaded_segments import LoadedSegments
from specserve_cuda.kernels.lowrank import SegmentedAdd
from specserve_cuda.kernels.lowrank_tables import PackedAdapter
from specserve_cuda.kernels.rows import SILU_BLOCK, gelu_launch, norm_launch, rotary_kernel, silu_launch
from specserve_cuda.kernels.sampler import TritonSampler
from specserve_cuda.kernels.short_conv import TritonShortConv
from specserve_cuda.launch import Launch, blocks, dense, power_of_2

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from specserve.api import (
        AdapterLimits,
        AdapterWeights,
        AttentionBackend,
        Mixer,
        RecurrentMixer,
        RunLimits,
        Sampler,
    )
    from specserve.api.batch import Segment
    from specserve.api.models import DecoderModel
    from specserve_cuda.kernels.forward_pass import TritonPass
    from specserve_cuda.kernels.linear import TileTable


class CudaKernels(KernelSet):
    """`specserve.api.KernelSet` on CUDA, for float32, bfloat16 and float16.

    Rotation and activation are Triton too, not torch: element-wise torch calls choose between vectorised and strided
    binaries by shape and alignment, and nothing guarantees that all of them contract a multiply-add alike.
    """

    name = "triton"
    row_tile: int | None = None

    def __init__(self, tiles: TileTable = TILES) -> None:
        self.tiles = tiles
        self.segmented = SegmentedAdd()
        self.tables = SharedTables()
        self.sampler: Sampler = TritonSampler()

    def fuse(self, model: DecoderModel, attention: AttentionBackend) -> TritonPass | None:
        return fuse(model, attention)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return self.prepare_linear(weight, bias)(x)

    def prepare_linear(self, weight: Tensor, bias: Tensor | None) -> TritonLinear:
        """Weights are read as they are."""
        return TritonLinear(weight, bias, self.tiles[weight.dtype])

    def pack_adapter(self, weights: AdapterWeights) -> PackedAdapter:
        return PackedAdapter(weights)

    def prepare_mixer(self, mixer: Mixer | RecurrentMixer) -> TritonShortConv | TritonDeltaNet | None:
        """None for mixers that change what these compute."""
        if type(mixer) is ShortConv:
            return TritonShortConv(mixer)
        return TritonDeltaNet(mixer, self.tables) if type(mixer) is GatedDeltaNet else None

    def graph_runs(self, mixers: Sequence[RecurrentMixer], limits: RunLimits) -> LoadedTables | None:
        """None where mixers are not this set's, or have windows of different lengths."""
        taps = {mixer.config.taps for mixer in mixers if isinstance(mixer, TritonDeltaNet)}
        if len(taps) != 1 or not all(isinstance(mixer, TritonDeltaNet) for mixer in mixers):
            return None
        shape = StateShape(taps.pop(), limits.nodes, limits.slots * limits.nodes)
        return LoadedTables(shape, limits, torch.device("cuda"))

    def graph_adapters(self, projections: Sequence[str], limits: AdapterLimits) -> LoadedSegments:
        return LoadedSegments(projections, limits, torch.device("cuda"))

    def add_low_rank(self, projection: str, x: Tensor, out: Tensor, segments: Sequence[Segment]) -> None:
        self.segmented(projection, x, out, segments)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        x, size = dense(x), len(weight)
        out = x.new_empty(x.shape)
        norm_of((x.dtype, weight.dtype), size)(x.numel() // size, 1, x, x, weight, out, size, size, eps)
        return out

    def rotary(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        num_rows, heads, head_dim = x.shape
        assert x.stride(2) == 1, "the dimensions of a head lie side by side"
        out = x.new_empty(x.shape)
        launch = Launch(rotary_kernel, {"BLOCK": power_of_2(head_dim)}, num_warps=1)
        launch(
            num_rows * heads, 1,
            x, dense(cos), dense(sin), out, heads, head_dim, cos.shape[-1], x.stride(0), x.stride(1),
        )  # fmt: skip
        return out

    def silu_and_multiply(self, gate_up: Tensor) -> Tensor:
        return activated(gate_up, silu_of)

    def gelu_and_multiply(self, gate_up: Tensor) -> Tensor:
        return activated(gate_up, gelu_of)

    def gate(self, x: Tensor, gates: Tensor) -> Tensor:
        return gated(x, gates)


def activated(gate_up: Tensor, launch_of: Callable[[torch.dtype, int], Launch]) -> Tensor:
    """gate_up: [T, 2n] -> [T, n]."""
    gate_up, size = dense(gate_up), gate_up.shape[-1] // 2
    out = gate_up.new_empty((len(gate_up), size))
    launch_of(gate_up.dtype, size)(len(gate_up), blocks(size, SILU_BLOCK), gate_up, out, size)
    return out


@cache
def norm_of(dtypes: tuple[torch.dtype, torch.dtype], size: int) -> Launch:
    """For all rows and weights of these types and this size, which a launch is specialised on."""
    return norm_launch(size, has_added=False)


@cache
def silu_of(dtype: torch.dtype, size: int) -> Launch:
    return silu_launch()


@cache
def gelu_of(dtype: torch.dtype, size: int) -> Launch:
    return gelu_launch()
