"""The linear map of the CUDA kernel set: one Triton kernel, and the tiles in which it may be launched.

One program sums the whole depth of its tile in order: no split of the depth, no autotuning. A row's bits then depend on
its own values alone: the tiles of a dtype add the same products in the same order. Rows are the grid's fastest axis, so
that the programs that share a weight run side by side and read it from memory once. Imports Triton.
"""
# mypy: disable-error-code="untyped-decorator"
# (triton ships no types)

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import torch
import triton
import triton.language as tl

from specserve_cuda.launch import Launch, blocks, dense

if TYPE_CHECKING:
    from torch import Tensor


class TileSizes(NamedTuple):
    """Launch configuration of a matrix product."""

    rows: int
    columns: int
    depth: int
    num_warps: int
    num_stages: int


class RowTiles(NamedTuple):
    """Which tiles serve calls of at most `max_rows` rows; None: of any number."""

    max_rows: int | None
    sizes: TileSizes


TileTable: TypeAlias = "dict[torch.dtype, tuple[RowTiles, ...]]"
"""By dtype, by ascending `max_rows`; the last serves the rest."""

# Few rows are limited by the memory's bandwidth: narrow columns give a step enough programs, and four stages enough
# bytes in flight. Many rows are limited by arithmetic: wide tiles. All of them walk the depth in steps of 16 into one
# sum per output; on an H200 their bits are equal (test_gpu_kernels.py), and the sizes are the fastest there
# (docs/gpu.md). None takes more than the 99 KB of shared memory that consumer cards have.
HALVES = (
    RowTiles(16, TileSizes(rows=16, columns=32, depth=256, num_warps=4, num_stages=4)),
    RowTiles(64, TileSizes(rows=64, columns=32, depth=128, num_warps=4, num_stages=4)),
    RowTiles(512, TileSizes(rows=64, columns=128, depth=64, num_warps=4, num_stages=4)),
    RowTiles(None, TileSizes(rows=128, columns=128, depth=64, num_warps=8, num_stages=3)),
)
TILES: TileTable = {
    torch.bfloat16: HALVES,
    torch.float16: HALVES,
    torch.float32: (RowTiles(None, TileSizes(rows=32, columns=32, depth=32, num_warps=4, num_stages=2)),),
}


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
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
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


class TritonLinear:
    """One weight [out, in] with its bias, and a launch for each of its tiles."""

    def __init__(self, weight: Tensor, bias: Tensor | None, tiles: tuple[RowTiles, ...]) -> None:
        assert weight.stride(1) == 1, "weights are row-major [out, in]"
        assert tiles[-1].max_rows is None, "the last tiles serve any number of rows"
        self.weight, self.bias = weight, weight if bias is None else bias
        self.width, self.depth = weight.shape
        self.launches = [(most, sizes, self.launch(sizes, bias is not None)) for most, sizes in tiles]

    def launch(self, sizes: TileSizes, has_bias: bool) -> Launch:
        constants = {
            "depth": self.depth, "HAS_BIAS": has_bias,
            "ROWS": sizes.rows, "COLUMNS": sizes.columns, "DEPTH": sizes.depth,
        }  # fmt: skip
        return Launch(linear_kernel, constants, num_warps=sizes.num_warps, num_stages=sizes.num_stages)

    def __call__(self, x: Tensor) -> Tensor:
        """x: [T, in] -> [T, out]."""
        out = x.new_empty((len(x), self.width))
        self.into(dense(x), out)
        return out

    def into(self, x: Tensor, out: Tensor) -> None:
        """x: [T, in], out: [T, out], both contiguous and aligned."""
        rows = len(x)
        for most, sizes, launch in self.launches:
            if most is None or rows <= most:
                launch(
                    blocks(rows, sizes.rows), blocks(self.width, sizes.columns),
                    x, self.weight, self.bias, out, rows, self.width, self.weight.stride(0),
                )  # fmt: skip
                return
