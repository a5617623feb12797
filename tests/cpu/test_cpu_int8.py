"""Linear maps with weights of 8 bits: the nearest integers, sums near float64, the same bits in every batch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from native_cases import (
    ALIKE,
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
from specserve_cpu.attention import native_module
from specserve_cpu.linear import PackedLinear, quantise
from specserve_cpu.options import WHOLE_ROW

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.protocols.quantised import Activations
    from specserve_cpu import _native

SHAPES = [(2, 1), (31, 16), (32, 17), (64, 100), (330, 15), (864, 320), (4000, 20)]
GROUPS = (WHOLE_ROW, 64, 30, 2)


def quantised(weight: Tensor, group_size: int) -> tuple[Tensor, Tensor]:
    """The definition, in torch: integers, and the scale of each weight."""
    integers, scales = torch.empty_like(weight, dtype=torch.float64), torch.empty_like(weight, dtype=torch.float64)
    for begin in range(0, weight.shape[1], group_size):
        group = weight[:, begin : begin + group_size].float()
        scale = group.abs().amax(1, keepdim=True) / 127
        integers[:, begin : begin + group_size] = (group / scale).nan_to_num(0).round().double()
        scales[:, begin : begin + group_size] = scale.double()
    return integers, scales


def int8_linear(
    m: _native.Machine, weight: Tensor, bias: Tensor | None, group_size: int, activations: Activations = "auto"
) -> PackedLinear:
    return PackedLinear(m, quantise(m, weight, group_size), bias, activations)


@each_dtype
@pytest.mark.parametrize("group_size", [1000, 64, 30, 2])
@pytest.mark.parametrize("threads", [1, 3])
def test_quantisation_is_symmetric_and_to_the_nearest(dtype: torch.dtype, group_size: int, threads: int) -> None:
    weight = randn(70, 130, dtype=dtype)
    weight[3] = 0
    weight[5, 10:50] = 0
    groups = -(-130 // group_size)
    integers, scales = torch.full((70, 130), 99, dtype=torch.int8), torch.full((70, groups), 7.0)
    native_module(dtype).quantize(machine(SETS[0], threads), weight, group_size, integers, scales)
    expected, expected_scales = quantised(weight, group_size)
    assert torch.equal(integers.double(), expected)
    assert torch.equal(scales.repeat_interleave(group_size, 1)[:, :130].double(), expected_scales)
    assert integers.abs().max() == 127


@covering(
    ("shape", "group_size"), ("isa", "dtype", "group_size"), shape=SHAPES, isa=SETS, dtype=DTYPES, group_size=GROUPS
)
def test_sums_are_near_float64(shape: tuple[int, int], isa: str, dtype: torch.dtype, group_size: int) -> None:
    in_features, out_features = shape
    weight, x = randn(out_features, in_features, dtype=dtype), randn(37, in_features, dtype=dtype, seed=1)
    bias = randn(out_features, dtype=dtype, seed=2) if in_features % 3 else None
    integers, scales = quantised(weight, group_size)
    exact = x.double() @ (integers * scales).T + (0 if bias is None else bias.double())
    magnitude = x.double().abs() @ (integers * scales).T.abs() + (0 if bias is None else bias.double().abs())
    got = int8_linear(machine(isa), weight, bias, group_size)(x)
    assert_near(got, exact, (2 * in_features + 2) * U_SUM * magnitude, dtype)


def check_row(isa: str, dtype: torch.dtype, activations: Activations, data: st.DataObject) -> None:
    group_size = data.draw(st.sampled_from(GROUPS if activations == "auto" else (WHOLE_ROW, 64, 20)), "group size")
    check_row_of_linear(partial(int8_linear, group_size=group_size, activations=activations), isa, dtype, data)


ACTIVATIONS = ["auto", "int8"]
each_activations = pytest.mark.parametrize("activations", ACTIVATIONS)


@covering(
    ("isa", "dtype"), ("isa", "activations"), ("activations", "dtype"), isa=SETS, dtype=DTYPES, activations=ACTIVATIONS
)
@some
@given(data=st.data())
def test_a_row_has_the_same_bits_among_any_others(
    isa: str, dtype: torch.dtype, activations: Activations, data: st.DataObject
) -> None:
    check_row(isa, dtype, activations, data)


@pytest.mark.sweep
@each_linear_set
@each_dtype
@each_activations
@many
@given(data=st.data())
def test_a_row_has_the_same_bits_among_very_many_others(
    isa: str, dtype: torch.dtype, activations: Activations, data: st.DataObject
) -> None:
    check_row(isa, dtype, activations, data)


@each_linear_set
@each_dtype
@pytest.mark.parametrize("group_size", [WHOLE_ROW, 64])
def test_an_output_does_not_depend_on_the_other_outputs(isa: str, dtype: torch.dtype, group_size: int) -> None:
    weight = randn(200, 96, dtype=dtype)
    for x in (randn(5, 96, dtype=dtype), randn(70, 96, dtype=dtype)):
        whole = int8_linear(machine(isa, 2), weight, None, group_size)(x)
        for outs in (1, 16, 17, 130):
            part = int8_linear(machine(isa), weight[:outs].contiguous(), None, group_size)(x)
            assert same_bits(whole[:, :outs], part)


@pytest.mark.skipif(len(ALIKE) < 2, reason="the processor has no two of them")
@each_dtype
@pytest.mark.parametrize("group_size", GROUPS)
def test_avx2_has_the_bits_of_avx512(dtype: torch.dtype, group_size: int) -> None:
    weight, bias = randn(100, 300, dtype=dtype), randn(100, dtype=dtype)
    for rows in (1, 3, 5, 17, 130):
        x = randn(rows, 300, dtype=dtype, seed=rows)
        first, *others = [int8_linear(machine(isa), weight, bias, group_size)(x) for isa in ALIKE]
        assert all(same_bits(first, other) for other in others)


@each_linear_set
@each_dtype
@pytest.mark.parametrize("group_size", [WHOLE_ROW, 64])
def test_not_a_number_reaches_every_output_of_its_row(isa: str, dtype: torch.dtype, group_size: int) -> None:
    for rows in (3, 40):
        x = randn(rows, 70, dtype=dtype)
        x[1, 69] = float("nan")
        out = int8_linear(machine(isa), randn(40, 70, dtype=dtype), None, group_size)(x)
        assert out.isnan().any(1).tolist() == [i == 1 for i in range(rows)]
        assert out[1].isnan().all()


@each_dtype
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_weight_that_is_not_finite_is_refused(dtype: torch.dtype, value: float) -> None:
    weight = randn(20, 64, dtype=dtype)
    weight[7, 50] = value
    with pytest.raises(ValueError, match="weight must be finite"):
        int8_linear(machine(SETS[0]), weight, None, 64)


@each_dtype
def test_wrong_arguments_are_refused(dtype: torch.dtype) -> None:
    native, m = native_module(dtype), machine(SETS[0])
    weight, integers, scales = randn(20, 64, dtype=dtype), torch.zeros(20, 64, dtype=torch.int8), torch.zeros(20, 2)
    native.quantize(m, weight, 32, integers, scales)
    with pytest.raises(ValueError, match=r"scales must be float32 \[20, 4\]; got float32 \[20, 2\]"):
        native.quantize(m, weight, 16, integers, scales)
    with pytest.raises(ValueError, match=r"integers must be int8 \[20, 64\]; got int8 \[20, 63\]"):
        native.quantize(m, weight, 32, integers[:, :63].contiguous(), scales)
    for group_size in (0, -2, *((3,) if dtype == torch.bfloat16 else ())):
        with pytest.raises(ValueError, match="group_size must be positive"):
            native.PackedLinear(m, integers, scales, group_size, "auto", None)
    with pytest.raises(ValueError, match="scales must be float32"):
        native.PackedLinear(m, integers, scales.double(), 32, "auto", None)
    with pytest.raises(ValueError, match="integers must be int8"):
        native.PackedLinear(m, integers.short(), scales, 32, "auto", None)
