"""The CUDA kernel set: the row-wise arithmetic of a decoder as Triton kernels.

Owns one launch configuration per dtype for every row count: fixed tiles, K walked in order by one program, no
split-K, no autotuning. A row's bits then depend on its own values alone, and the runner needs no padding. Knows
nothing about models, weights or batches. Imports Triton; only a start on CUDA imports this module.

Row counts are never specialised on (Triton would compile another binary for 1 and for multiples of 16), and
inputs are contiguous and 16-byte aligned, so that one binary serves all rows of a weight.
"""
# mypy: disable-error-code="untyped-decorator"
# (triton ships no types)

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl

from specserve.kernels.triton_lowrank import PackedAdapter, SegmentedAdd
from specserve.sampling.sampler import TorchSampler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.lora_plan import Segment
    from specserve.models.decoder import DecoderModel
    from specserve.protocols import AdapterWeights, AttentionBackend, Sampler

ALIGNMENT = 16
"""Bytes: what Triton specialises pointers on."""
SILU_BLOCK = 1024


class TileSizes(NamedTuple):
    """Launch configuration of a matrix product. Any change here changes the arithmetic, and with it bits."""

    rows: int
    columns: int
    depth: int
    num_warps: int
    num_stages: int


# 64 rows are the least that Hopper's wgmma takes; narrow columns give a decode step enough programs to saturate the
# memory bandwidth, which limits it.
HALF = TileSizes(rows=64, columns=32, depth=128, num_warps=4, num_stages=3)
FULL = TileSizes(rows=32, columns=32, depth=32, num_warps=4, num_stages=2)
TILES = {torch.bfloat16: HALF, torch.float16: HALF, torch.float32: FULL}


@triton.jit(do_not_specialize=["num_rows"])
def linear_kernel(
    x: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    out: tl.tensor,
    num_rows: tl.tensor,
    width: tl.tensor,
    weight_stride: tl.tensor,
    depth: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
) -> None:
    """out[r, c] = sum over d of x[r, d] * weight[c, d], + bias[c]; one program per tile of out."""
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    depths = tl.arange(0, DEPTH)
    # 64-bit: a vocabulary times a hidden size can exceed 2^31
    x_at = x + rows[:, None].to(tl.int64) * depth + depths[None, :]
    weight_at = weight + columns[None, :].to(tl.int64) * weight_stride + depths[:, None]
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(0, depth, DEPTH):
        inside = depths < depth - start
        a = tl.load(x_at + start, mask=(rows[:, None] < num_rows) & inside[None, :], other=0.0)
        b = tl.load(weight_at + start, mask=(columns[None, :] < width) & inside[:, None], other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")  # float32 stays float32: no TF32
    if HAS_BIAS:
        total += tl.load(bias + columns, mask=columns < width, other=0.0).to(tl.float32)[None, :]
    out_at = out + rows[:, None].to(tl.int64) * width + columns[None, :]
    tl.store(out_at, total.to(out.dtype.element_ty), mask=(rows[:, None] < num_rows) & (columns[None, :] < width))


@triton.jit
def rms_norm_kernel(
    x: tl.tensor, weight: tl.tensor, out: tl.tensor, size: tl.tensor, eps: tl.tensor, BLOCK: tl.constexpr
) -> None:
    """One program per row; the tree of the sum is that of BLOCK, whatever the number of rows."""
    row = tl.program_id(0).to(tl.int64) * size
    columns = tl.arange(0, BLOCK)
    inside = columns < size
    raw = tl.load(x + row + columns, mask=inside, other=0.0)
    values = raw.to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, axis=0) / size + eps)
    # rounded before the weight multiplies, as the checkpoints were trained
    normed = (values * scale).to(raw.dtype).to(tl.float32)
    gain = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row + columns, (normed * gain).to(out.dtype.element_ty), mask=inside)


@triton.jit
def rotary_kernel(
    x: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    out: tl.tensor,
    heads: tl.tensor,
    head_dim: tl.tensor,
    rotary_dim: tl.tensor,
    row_stride: tl.tensor,
    head_stride: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """One program per head of a row: x * cos + rotate_half(x) * sin in float32, rounded once."""
    program = tl.program_id(0).to(tl.int64)
    row, head = program // heads, program % heads
    columns = tl.arange(0, BLOCK)
    inside, in_rotary = columns < head_dim, columns < rotary_dim
    partners = (columns + rotary_dim // 2) % rotary_dim
    source = x + row * row_stride + head * head_stride
    raw = tl.load(source + columns, mask=inside, other=0.0)
    partner = tl.load(source + partners, mask=in_rotary, other=0.0).to(tl.float32)
    c = tl.load(cos + row * rotary_dim + columns, mask=in_rotary, other=1.0)
    s = tl.load(sin + row * rotary_dim + columns, mask=in_rotary, other=0.0)
    rotated = (raw.to(tl.float32) * c + partner * s).to(raw.dtype)
    tl.store(out + program * head_dim + columns, tl.where(in_rotary, rotated, raw), mask=inside)


@triton.jit
def silu_and_multiply_kernel(gate_up: tl.tensor, out: tl.tensor, size: tl.tensor, BLOCK: tl.constexpr) -> None:
    """out = silu(gate) * up; silu is rounded to the dtype before the product, as two torch calls would."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < size
    source = gate_up + row * 2 * size + columns
    raw = tl.load(source, mask=inside, other=0.0)
    up = tl.load(source + size, mask=inside, other=0.0).to(tl.float32)
    gate = raw.to(tl.float32)
    activated = (gate / (1.0 + tl.exp(-gate))).to(raw.dtype).to(tl.float32)
    tl.store(out + row * size + columns, (activated * up).to(out.dtype.element_ty), mask=inside)


class CudaKernels:
    """`specserve.protocols.KernelSet` on CUDA, for float32, bfloat16 and float16.

    Rotation and activation are Triton too, not torch: element-wise torch calls choose between vectorised and strided
    binaries by shape and alignment, and nothing guarantees that all of them contract a multiply-add alike.
    """

    name = "triton"
    sampler: Sampler = TorchSampler()
    row_tile: int | None = None

    def fuse(self, model: DecoderModel, attention: AttentionBackend) -> None:
        """No kernel here spans more than one piece."""

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        assert weight.stride(1) == 1, "weights are row-major [out, in]"
        x, (width, depth), tiles = dense(x), weight.shape, TILES[x.dtype]
        out = x.new_empty((len(x), width))
        grid = (triton.cdiv(width, tiles.columns), triton.cdiv(len(x), tiles.rows))
        linear_kernel[grid](
            x, weight, weight if bias is None else bias, out, len(x), width, weight.stride(0),
            depth=depth, HAS_BIAS=bias is not None, ROWS=tiles.rows, COLUMNS=tiles.columns, DEPTH=tiles.depth,
            num_warps=tiles.num_warps, num_stages=tiles.num_stages,
        )  # fmt: skip
        return out

    def prepare_linear(self, weight: Tensor, bias: Tensor | None) -> None:
        """Weights are read as they are."""

    def __init__(self) -> None:
        self.segmented = SegmentedAdd()

    def pack_adapter(self, weights: AdapterWeights) -> PackedAdapter:
        return PackedAdapter(weights)

    def add_low_rank(self, projection: str, x: Tensor, out: Tensor, segments: Sequence[Segment]) -> None:
        self.segmented(projection, x, out, segments)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        x, size = dense(x), len(weight)
        out, block = torch.empty_like(x), triton.next_power_of_2(size)
        rms_norm_kernel[(x.numel() // size,)](x, weight, out, size, eps, BLOCK=block, num_warps=warps_for(block))
        return out

    def rotary(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        num_rows, heads, head_dim = x.shape
        assert x.stride(2) == 1, "the dimensions of a head lie side by side"
        out = x.new_empty(x.shape)
        rotary_kernel[(num_rows * heads,)](
            x, dense(cos), dense(sin), out, heads, head_dim, cos.shape[-1], x.stride(0), x.stride(1),
            BLOCK=triton.next_power_of_2(head_dim), num_warps=1,
        )  # fmt: skip
        return out

    def silu_and_multiply(self, gate_up: Tensor) -> Tensor:
        gate_up, size = dense(gate_up), gate_up.shape[-1] // 2
        out = gate_up.new_empty((len(gate_up), size))
        grid = (len(gate_up), triton.cdiv(size, SILU_BLOCK))
        silu_and_multiply_kernel[grid](gate_up, out, size, BLOCK=SILU_BLOCK, num_warps=4)
        return out


def dense(x: Tensor) -> Tensor:
    """x, or a contiguous and aligned copy. What the runner passes is nearly always both already."""
    x = x.contiguous()
    return x if x.data_ptr() % ALIGNMENT == 0 else x.clone()


def warps_for(block: int) -> int:
    """Warps of a program that owns a whole row: a function of the row's width only."""
    return min(16, max(1, block // 512))
