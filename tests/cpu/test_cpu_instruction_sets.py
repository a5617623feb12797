"""avx2 computes the bits of avx512: the same operations in the same order, half as many lanes at a time.

VNNI changes none of them; nor do dot products and products of matrices of bytes on NEON, whose bits are these, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from native_cases import ALIKE, DTYPES, each_dtype, machine, make_unusual, randn, same_bits
from paged import Paged, Shape, SpanCase

from covering import covering
from specserve_cpu.kernels import CpuKernels, PackedLinear

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

pytestmark = pytest.mark.skipif(len(ALIKE) < 2, reason="the processor has no two of them")

SIZES = [2, 8, 14, 16, 30, 48, 100, 864]


def assert_same_on_all(compute: Callable[[str], list[Tensor]]) -> None:
    """compute: the outputs on an instruction set."""
    first, *others = map(compute, ALIKE)
    for other in others:
        assert len(first) == len(other)
        assert all(map(same_bits, first, other))


@each_dtype
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("unusual", [False, True])
def test_linear_maps_have_the_same_bits(dtype: torch.dtype, size: int, unusual: bool) -> None:
    weight, bias = randn(100, size, dtype=dtype), randn(100, dtype=dtype)
    xs = [randn(rows, size, dtype=dtype, seed=rows) for rows in (1, 2, 3, 4, 5, 7, 37, 130)]
    if unusual:
        xs = [make_unusual(x, len(x)) for x in xs]
    assert_same_on_all(lambda isa: [without_signs_of_nan(PackedLinear(machine(isa), weight, bias)(x)) for x in xs])


@covering(
    ("dtype", "size", "unusual"), ("dtype", "scale"), ("size", "scale"), ("scale", "unusual"),
    dtype=DTYPES, size=SIZES, scale=[1.0, 40.0], unusual=[False, True],
)  # fmt: skip
def test_row_wise_kernels_have_the_same_bits(dtype: torch.dtype, size: int, scale: float, unusual: bool) -> None:
    x, weight = randn(50, size, dtype=dtype, scale=scale), randn(size, dtype=dtype)
    cos, sin = randn(50, 1, size), randn(50, 1, size, seed=1)
    if unusual:
        make_unusual(x, 1)

    def compute(isa: str) -> list[Tensor]:
        kernels = CpuKernels(machine(isa), str(dtype).removeprefix("torch."))
        rotated = kernels.rotary(x[:, None].contiguous(), cos, sin)
        outs = (kernels.rms_norm(x, weight, 1e-6), rotated, kernels.silu_and_multiply(x))
        return [without_signs_of_nan(out) for out in outs]

    assert_same_on_all(compute)


SHAPES = [Shape(2, 3, dim, block_size=16, window=window) for dim in (8, 16, 20, 64, 80, 128) for window in (0, 60)]
SHAPES += [shape._replace(cap=2.0, sinks=True) for shape in SHAPES[-4:]]


@each_dtype
@pytest.mark.parametrize(("shape", "layout"), [(shape, each) for shape in SHAPES for each in shape.layouts], ids=str)
def test_attention_has_the_same_bits(dtype: torch.dtype, shape: Shape, layout: str) -> None:
    spans = [SpanCase(0, 50), SpanCase(127, 1), SpanCase(250, 3, 5, (-1, 0, -1, 2, 0)), SpanCase(3, 2)]

    def compute(isa: str) -> list[Tensor]:
        paged = Paged(shape, spans, dtype, layout)
        for x, seed in ((paged.q, 1), (paged.k, 2), (paged.v, 3)):
            make_unusual(x[:20], seed)
        out = paged.run(isa)
        return [without_signs_of_nan(out), paged.cache[1][:, paged.new_slots]]

    assert_same_on_all(compute)


def without_signs_of_nan(x: Tensor) -> Tensor:
    """An operation on two NaN returns either, as the compiler orders the operands."""
    return torch.where(x.isnan(), torch.nan, x)
