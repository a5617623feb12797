"""All supported instruction sets and dtypes, and comparisons: of bits, or with float64.

U is the unit roundoff: half the distance from 1 to the next number.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st

from specserve_cpu import _native

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from specserve_cpu.linear import PackedLinear

SETS = _native.instruction_sets()
DTYPES = (torch.float32, torch.bfloat16)
ALIKE = [
    name for name in SETS if name in ("avx512_vnni", "avx512", "avx2_vnni", "avx2", "neon_i8mm", "neon_dot", "neon")
]
"""They do the same operations in the same order."""
each_linear_set = pytest.mark.parametrize("isa", SETS)
WHOLE_SETS = [name for name in SETS if not name.endswith(("_vnni", "_dot", "_i8mm"))]
"""The others have linear maps of their own alone; their other kernels are those of one of these."""
each_set = pytest.mark.parametrize("isa", WHOLE_SETS)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
some = settings(max_examples=60, deadline=None, derandomize=True)
many = settings(max_examples=500, deadline=None)

U_SUM = 2.0**-24
U = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8}
UNUSUAL = (float("nan"), float("inf"), -float("inf"), 3e38, -3e38, 0.0, -0.0, 1e-38, 1e-40)


@cache
def machine(isa: str, threads: int = 1) -> _native.Machine:
    return _native.Machine(isa, threads)


def randn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(shape, generator=generator)).to(dtype)


def make_unusual(x: Tensor, seed: int) -> Tensor:
    """In place: a tenth of the elements become NaN, infinite, huge, subnormal or a zero of either sign."""
    generator = torch.Generator().manual_seed(seed)
    kinds = torch.tensor(UNUSUAL).to(x.dtype)
    chosen = kinds[torch.randint(len(kinds), x.shape, generator=generator)]
    return x.copy_(torch.where(torch.rand(x.shape, generator=generator) < 0.1, chosen, x))


def same_bits(a: Tensor, b: Tensor) -> bool:
    assert a.shape == b.shape
    assert a.dtype == b.dtype
    words = torch.int16 if a.element_size() == 2 else torch.int32
    return torch.equal(a.contiguous().view(words), b.contiguous().view(words))


def check_row_of_linear(
    make: Callable[[_native.Machine, Tensor, Tensor], PackedLinear], isa: str, dtype: torch.dtype, data: st.DataObject
) -> None:
    """A row has the same bits alone and among any others. make: of a weight and a bias."""
    in_features, out_features = data.draw(st.integers(1, 300), "inputs"), data.draw(st.integers(1, 300), "outputs")
    rows = data.draw(st.integers(1, 300), "rows")
    row, seed = data.draw(st.integers(0, rows - 1), "row"), data.draw(st.integers(0, 99), "seed")
    weight, bias = randn(out_features, in_features, dtype=dtype, seed=seed), randn(out_features, dtype=dtype, seed=seed)
    x = make_unusual(randn(rows, in_features, dtype=dtype, seed=seed + 1), seed)
    x[row] = randn(in_features, dtype=dtype, seed=seed + 2)
    among = make(machine(isa, data.draw(st.sampled_from((1, 2, 3)), "threads")), weight, bias)(x)
    alone = make(machine(isa), weight, bias)(x[row : row + 1].clone())
    assert same_bits(among[row : row + 1], alone)


def assert_near(got: Tensor, exact: Tensor, error: Tensor | float, dtype: torch.dtype) -> None:
    """got: may have an error of at most `error` before it is rounded to dtype; exact: float64."""
    difference = (got.double() - exact).abs()
    allowed = error + U[dtype] * (exact.abs() + error) + 2.0**-126
    worst = (difference / allowed).max().item()
    assert worst <= 1, f"{worst:.2f} times the error that is allowed"
