"""The packed linear map: near float64 for every shape, and a row's bits do not depend on the other rows."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from native_cases import (
    DTYPES,
    SETS,
    U_SUM,
    assert_near,
    check_row_of_linear,
    each_dtype,
    each_linear_set,
    machine,
    many,
    randn,
    same_bits,
    some,
)

from covering import covering
from specserve_cpu.kernels import PackedLinear

SHAPES = [(2, 1), (31, 16), (32, 17), (33, 48), (64, 100), (330, 15), (864, 320), (1000, 33)]


@covering(
    ("isa", "dtype", "shape"), ("isa", "dtype", "bias"), ("shape", "bias"),
    isa=SETS, dtype=DTYPES, shape=SHAPES, bias=[False, True],
)  # fmt: skip
def test_a_linear_map_is_near_float64(isa: str, dtype: torch.dtype, shape: tuple[int, int], bias: bool) -> None:
    in_features, out_features = shape
    weight, x = randn(out_features, in_features, dtype=dtype), randn(37, in_features, dtype=dtype, seed=1)
    b = randn(out_features, dtype=dtype, seed=2) if bias else None
    got = PackedLinear(machine(isa), weight, b)(x)
    exact = x.double() @ weight.double().T + (0 if b is None else b.double())
    magnitude = x.double().abs() @ weight.double().abs().T + (0 if b is None else b.double().abs())
    assert_near(got, exact, (in_features + 2) * U_SUM * magnitude, dtype)


def check_row(isa: str, dtype: torch.dtype, data: st.DataObject) -> None:
    check_row_of_linear(PackedLinear, isa, dtype, data)


@each_linear_set
@each_dtype
@some
@given(data=st.data())
def test_a_row_has_the_same_bits_among_any_others(isa: str, dtype: torch.dtype, data: st.DataObject) -> None:
    check_row(isa, dtype, data)


@pytest.mark.sweep
@each_linear_set
@each_dtype
@many
@given(data=st.data())
def test_a_row_has_the_same_bits_among_very_many_others(isa: str, dtype: torch.dtype, data: st.DataObject) -> None:
    check_row(isa, dtype, data)


@each_linear_set
@each_dtype
def test_an_output_does_not_depend_on_the_other_outputs(isa: str, dtype: torch.dtype) -> None:
    weight, x = randn(200, 96, dtype=dtype), randn(5, 96, dtype=dtype)
    whole = PackedLinear(machine(isa, 2), weight, None)(x)
    for outs in (1, 16, 17, 130):
        assert same_bits(whole[:, :outs], PackedLinear(machine(isa), weight[:outs].contiguous(), None)(x))


@each_linear_set
@each_dtype
def test_rows_may_be_strided(isa: str, dtype: torch.dtype) -> None:
    weight, wide = randn(40, 64, dtype=dtype), randn(9, 100, dtype=dtype)
    linear = PackedLinear(machine(isa), weight, None)
    assert same_bits(linear(wide[:, 4:68]), linear(wide[:, 4:68].contiguous()))
    out = torch.full((9, 50), 7, dtype=dtype)
    linear.native.forward(wide[:, 4:68], out[:, 3:43])
    assert same_bits(out[:, 3:43], linear(wide[:, 4:68]))
    assert (out[:, :3] == 7).all()
    assert (out[:, 43:] == 7).all()


@each_linear_set
@each_dtype
def test_an_empty_batch_is_accepted(isa: str, dtype: torch.dtype) -> None:
    linear = PackedLinear(machine(isa, 2), randn(40, 64, dtype=dtype), None)
    assert linear(torch.empty(0, 64, dtype=dtype)).shape == (0, 40)


@each_linear_set
@each_dtype
def test_not_a_number_reaches_every_output_of_its_row(isa: str, dtype: torch.dtype) -> None:
    x = randn(3, 70, dtype=dtype)
    x[1, 69] = float("nan")
    out = PackedLinear(machine(isa), randn(40, 70, dtype=dtype), None)(x)
    assert out.isnan().any(1).tolist() == [False, True, False]
    assert out[1].isnan().all()
