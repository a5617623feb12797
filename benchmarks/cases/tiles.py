"""On a CUDA device: what the linear kernel reaches in each tile, and whether its bits depend on the tile.

One row per weight and row count: microseconds by tile, `=` where the bits are those of the first tile, `!` where they
are not; then cuBLAS, and the time in which the card's memory could give the weight, by the speed of a copy measured
here. Weights alternate, so that none stays in the cache between launches.
"""

from __future__ import annotations

from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F

from benchmarks.lib.report import Check, Options, Result
from specserve.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from specserve_cuda.kernels.linear import TileSizes

SHAPES = ((4096, 4096), (6144, 4096), (28672, 4096), (4096, 14336), (128256, 4096))
"""[width, depth] of an 8B Llama's weights."""
ROW_COUNTS = (1, 9, 32, 64, 288, 2048)
CACHE_BYTES = 400 * 2**20
COPY_BYTES = 2**30


class Measured(NamedTuple):
    """Of one weight and row count."""

    cells: tuple[str, ...]
    equal: list[bool]
    microseconds: dict[str, float]


def run(options: Options) -> Result:
    from specserve_cuda.kernels.linear import TILES, TileSizes

    if not torch.cuda.is_available():
        raise ConfigError("benchmark tiles: torch sees no CUDA device here. Run it on a machine that has one.")
    in_use = [row_tiles.sizes for row_tiles in TILES[torch.bfloat16]]
    variants = [
        *in_use, in_use[1]._replace(depth=256, num_stages=3), in_use[1]._replace(columns=64),
        TileSizes(rows=128, columns=256, depth=64, num_warps=8, num_stages=3),
    ]  # fmt: skip
    speed = copy_speed()
    rows: list[tuple[str, ...]] = []
    raw: dict[str, list[float]] = {}
    equal = dict.fromkeys(variants, True)
    for width, depth in SHAPES[: 1 if options.quick else None]:
        count = max(2, CACHE_BYTES // (2 * width * depth))
        weights = [torch.randn(width, depth, device="cuda", dtype=torch.bfloat16) for _ in range(count)]
        floor = 2 * width * depth / speed * 1e6
        for num_rows in ROW_COUNTS:
            measured = measure(weights, num_rows, variants)
            rows.append((f"{width} x {depth}, {num_rows} rows", *measured.cells, f"{floor:.0f}"))
            raw |= {f"{width}x{depth} {num_rows} {k}": [us] for k, us in measured.microseconds.items()}
            for variant, same in zip(variants, measured.equal, strict=True):
                equal[variant] &= same
    names = [name_of(v) for v in variants]
    same_bits = [equal[sizes] for sizes in in_use]
    return Result(
        title=f"{torch.cuda.get_device_name()}, bfloat16, microseconds; a copy reaches {speed / 1e12:.2f} TB/s",
        columns=("weight", *names, "cuBLAS", "floor"),
        rows=rows,
        checks=[Check("tiles in use whose bits are those of the first", sum(same_bits), len(same_bits), False, "")],
        notes=["Tiles: rows x columns x depth, warps, stages."],
        raw=raw,
    )


def name_of(sizes: TileSizes) -> str:
    return f"{sizes.rows}x{sizes.columns}x{sizes.depth} {sizes.num_warps}w{sizes.num_stages}"


def measure(weights: list[Tensor], num_rows: int, variants: list[TileSizes]) -> Measured:
    from specserve_cuda.kernels.linear import RowTiles, TritonLinear

    x = torch.randn(num_rows, weights[0].shape[1], device="cuda", dtype=torch.bfloat16)
    expected, cells, equal, took = None, [], [], {}
    for sizes in variants:
        linears = [TritonLinear(weight, None, (RowTiles(None, sizes),)) for weight in weights]
        out = linears[0](x)
        expected = out if expected is None else expected
        equal.append(torch.equal(out, expected))
        us = microseconds(partial(multiply_next, cycle(linears), x))
        took[name_of(sizes)] = us
        cells.append(f"{us:.0f}{'=' if equal[-1] else '!'}")
    took["cuBLAS"] = microseconds(partial(multiply_next, cycle([partial(F.linear, weight=w) for w in weights]), x))
    return Measured((*cells, f"{took['cuBLAS']:.0f}"), equal, took)


def multiply_next(turns: Iterator[Callable[[Tensor], Tensor]], x: Tensor) -> Tensor:
    return next(turns)(x)


def copy_speed() -> float:
    """Bytes read and written per second by a copy of one GiB."""
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * COPY_BYTES / microseconds(partial(target.copy_, source)) * 1e6


def microseconds(action: Callable[[], object]) -> float:
    """The median, by events of the device."""
    from triton.testing import do_bench

    median: float = do_bench(action, warmup=10, rep=40, return_mode="median")
    return 1e3 * median
