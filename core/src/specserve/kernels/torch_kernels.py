"""The torch kernel set: the row-wise arithmetic of a decoder in plain torch calls.

Owns the rounding rules (norms and rotation in float32, everything else in the model's dtype) and the tile height;
knows nothing about models, weights or batches. Rows must come padded to `row_tile`: torch picks another matrix
algorithm for another row count, and with it other last bits.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from specserve.batch.lora_plan import HostAdapters
from specserve.kernels.clamped_swiglu import clamped_swiglu
from specserve.kernels.lowrank import add_to_all_rows
from specserve.protocols import KernelSet
from specserve.sampling.sampler import TorchSampler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from specserve.batch.lora_plan import Segment
    from specserve.models.decoder import DecoderModel
    from specserve.protocols import AdapterLimits, AdapterWeights, AttentionBackend, Sampler

SERIAL_ELEMENTS = 32768
"""Above this many elements torch splits an element-wise call among its threads, perhaps inside a row. At a split the
last few elements take a scalar path whose exp differs in the last bit, so a row's bits would depend on its place."""

HALF_DEPTH = 32
"""Inputs that half-precision matrix units of CPUs take at a time. Where a row ends inside such a tile, torch's products
read on into the next row, against weights padded with zeros: 0 * NaN is NaN, so a NaN reaches the row before it."""
CACHE_LINE = 16
"""float32 values of a cache line. Where rows do not all begin at the same offset in a line, torch's products of few
outputs sum them in different orders, and a row's bits depend on its place in the tile."""


class TorchKernels(KernelSet):
    """`specserve.protocols.KernelSet` for every device and dtype that torch serves."""

    name = "torch"
    sampler: Sampler = TorchSampler()
    row_tile: int | None = 32

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(padded_inputs(x), padded_inputs(weight), bias)

    def prepare_linear(self, weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor] | None:
        full = padded_inputs(weight)
        packed = packed_linear(full, bias, self.row_tile)
        if full is weight:
            return packed
        multiply = packed or (lambda x: F.linear(x, full, bias))
        return lambda x: multiply(padded_inputs(x))

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        # torch's own weight argument multiplies before the rounding to x's dtype; checkpoints were trained with the
        # rounding first. Same bits as float, square, mean, rsqrt, multiply written out, in two calls.
        if weight.dtype != x.dtype:
            return torch.rms_norm(x.float(), weight.shape, None, eps).mul_(weight).to(x.dtype)
        return torch.rms_norm(x, weight.shape, None, eps).mul_(weight)

    def rotary(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        size = cos.shape[-1]
        rotated = x[..., :size].float()
        rotated = (rotated * cos).addcmul_(rotated.roll(size // 2, -1), sin).to(x.dtype)
        return rotated if size == x.shape[-1] else torch.cat((rotated, x[..., size:]), -1)

    def silu_and_multiply(self, gate_up: Tensor) -> Tensor:
        return activate_and_multiply(gate_up, torch.ops.aten.silu.out)

    def gelu_and_multiply(self, gate_up: Tensor) -> Tensor:
        return activate_and_multiply(gate_up, partial(torch.ops.aten.gelu.out, approximate="tanh"))

    def clamped_swiglu(self, gate_up: Tensor, gain: float, limit: float) -> Tensor:
        gate, up = gate_up.chunk(2, -1)
        sizes = split_sizes(gate.shape[-1], max(SERIAL_ELEMENTS // len(gate), 1))
        parts = zip(gate.split_with_sizes(sizes, -1), up.split_with_sizes(sizes, -1), strict=True)
        return torch.cat([clamped_swiglu(*each, gain, limit) for each in parts], -1)

    def gate(self, x: Tensor, gates: Tensor) -> Tensor:
        apart = F.pad(gates, (0, 1))[:, :-1]  # so that torch computes row by row, and the last row as the others
        sizes = split_sizes(gates.shape[1], max(SERIAL_ELEMENTS // len(gates), 1))
        opened = torch.cat([each.sigmoid() for each in apart.split_with_sizes(sizes, -1)], -1)
        return (x.view(len(x), gates.shape[1], -1) * opened[..., None]).flatten(1)

    def pack_adapter(self, weights: AdapterWeights) -> AdapterWeights:
        return {
            name: tuple(part._replace(down=padded_inputs(part.down), up=padded_inputs(part.up)) for part in parts)
            for name, parts in weights.items()
        }

    def add_low_rank(self, projection: str, x: Tensor, out: Tensor, segments: Sequence[Segment]) -> None:
        add_to_all_rows(self.linear, projection, padded_inputs(x), out, segments)

    def graph_adapters(self, projections: Sequence[str], limits: AdapterLimits) -> HostAdapters:
        """A replay on a CPU makes the same calls again, with the segments of the step."""
        return HostAdapters()

    def fuse(self, model: DecoderModel, attention: AttentionBackend) -> None:
        """torch has no call for more than one of these."""


def activate_and_multiply(gate_up: Tensor, activation: Callable[..., Tensor]) -> Tensor:
    """activation: torch's, with a keyword `out`. In calls that are not split among threads."""
    size = gate_up.shape[-1] // 2
    gate, up = gate_up[..., :size], gate_up[..., size:]
    out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    if gate.numel() <= SERIAL_ELEMENTS or gate.device.type != "cpu":
        return activation(gate, out=out).mul_(up)
    sizes = split_sizes(size, SERIAL_ELEMENTS // gate.shape[0])
    for part, block in zip(gate.split_with_sizes(sizes, -1), out.split_with_sizes(sizes, -1), strict=True):
        activation(part, out=block)
    return out.mul_(up)


def padded_inputs(x: Tensor) -> Tensor:
    """x: [..., n], with zeros behind every row, so that its bits do not depend on the rows beside it."""
    missing = -x.shape[-1] % (CACHE_LINE if x.dtype == torch.float32 else HALF_DEPTH)
    if missing == 0 or x.device.type != "cpu":
        return x
    return F.pad(x, (0, missing))


def packed_linear(weight: Tensor, bias: Tensor | None, num_rows: int | None) -> Callable[[Tensor], Tensor] | None:
    """The map with its weight in oneDNN's own layout, where torch has that: otherwise oneDNN reorders a bf16 weight in
    every call, a third of the call's time. These are the operators that torch.compile emits for the same purpose."""
    if weight.device.type != "cpu" or weight.dtype != torch.bfloat16 or not packs_bfloat16():
        return None
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), num_rows)
    linear = torch.ops.mkldnn._linear_pointwise.default
    return lambda x: linear(x, packed, bias, "none", [], "")


def packs_bfloat16() -> bool:
    """Does this build of torch, on this processor, take prepacked bf16 weights?"""
    operators = ("_is_mkldnn_bf16_supported", "_reorder_linear_weight", "_linear_pointwise")
    return all(hasattr(torch.ops.mkldnn, name) for name in operators) and bool(
        torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


def split_sizes(size: int, block: int) -> list[int]:
    return [min(block, size - start) for start in range(0, size, block)]
