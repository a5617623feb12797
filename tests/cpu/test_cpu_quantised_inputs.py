"""Linear maps with weights and inputs of 8 bits: sums near float64 as defined. Rows and batches: test_cpu_int8.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from native_cases import (
    DTYPES,
    SETS,
    U_SUM,
    assert_near,
    each_dtype,
    each_linear_set,
    machine,
    randn,
    same_bits,
)
from test_cpu_int8 import SHAPES, int8_linear, quantised

from covering import covering, pairwise
from specserve.protocols.quantised import QuantisedWeight
from specserve_cpu.attention import native_module
from specserve_cpu.linear import MAX_SHARED, PackedLinear, has_quantisable_inputs, quantise
from specserve_cpu.options import WHOLE_ROW

if TYPE_CHECKING:
    from torch import Tensor

    from specserve_cpu import _native

GROUPS = (WHOLE_ROW, 64, 20)
FUSED = [isa for isa in SETS if isa != "portable"]
"""With fused multiply-adds."""


def linear(m: _native.Machine, weight: Tensor, bias: Tensor | None, group_size: int = WHOLE_ROW) -> PackedLinear:
    return int8_linear(m, weight, bias, group_size, "int8")


def quantised_inputs(x: Tensor, group_size: int) -> Tensor:
    """The definition, in torch: what is multiplied, in float64."""
    numbers = torch.empty_like(x, dtype=torch.float64)
    for begin in range(0, x.shape[1], group_size):
        group = x[:, begin : begin + group_size].float()
        most = group.abs().amax(1, keepdim=True)
        integers = (group * (torch.tensor(127.0) / most)).nan_to_num(0).round()
        numbers[:, begin : begin + group_size] = integers.double() * (most / 127).double()
    return numbers


@covering(
    ("isa", "dtype", "shape"), ("isa", "dtype", "group_size"), ("shape", "group_size"),
    isa=SETS, dtype=DTYPES, shape=SHAPES, group_size=GROUPS,
)  # fmt: skip
def test_sums_are_near_float64(isa: str, dtype: torch.dtype, shape: tuple[int, int], group_size: int) -> None:
    in_features, out_features = shape
    weight, x = randn(out_features, in_features, dtype=dtype), randn(37, in_features, dtype=dtype, seed=1)
    bias = randn(out_features, dtype=dtype, seed=2) if in_features % 3 else None
    integers, scales = quantised(weight, group_size)
    inputs, weights = quantised_inputs(x, group_size), integers * scales
    exact = inputs @ weights.T + (0 if bias is None else bias.double())
    magnitude = inputs.abs() @ weights.T.abs() + (0 if bias is None else bias.double().abs())
    groups = -(-in_features // group_size)
    assert_near(linear(machine(isa), weight, bias, group_size)(x), exact, (groups + 5) * U_SUM * magnitude, dtype)


@each_linear_set
def test_inputs_are_rounded_to_the_nearest_and_halves_to_even(isa: str) -> None:
    x = torch.tensor([[127.0, -127.0, 0.5, 1.5, -2.5, 2.49, 126.51, -0.51]])
    got = linear(machine(isa), 127 * torch.eye(8), None)(x)
    assert got.tolist() == [[127 * i for i in (127, -127, 0, 2, -2, 2, 127, -1)]]


@each_dtype
@pytest.mark.parametrize("group_size", GROUPS)
def test_all_instruction_sets_have_the_same_bits(dtype: torch.dtype, group_size: int) -> None:
    weight, bias = randn(100, 300, dtype=dtype), randn(100, dtype=dtype)
    for rows in (1, 3, 5, 17, 130):
        x = randn(rows, 300, dtype=dtype, seed=rows)
        sets = SETS if group_size == WHOLE_ROW else FUSED
        first, *others = [linear(machine(isa), weight, bias, group_size)(x) for isa in sets]
        assert all(same_bits(first, other) for other in others)


@covering(
    ("isa", "dtype", "group_size"), ("isa", "value"), ("dtype", "value"), ("group_size", "value"),
    isa=SETS, dtype=DTYPES, value=[float("nan"), float("inf"), -float("inf")], group_size=GROUPS,
)  # fmt: skip
def test_what_is_not_finite_makes_its_row_not_a_number(
    isa: str, dtype: torch.dtype, value: float, group_size: int
) -> None:
    for rows in (3, 40):
        x = randn(rows, 70, dtype=dtype)
        x[1, 3] = value
        out = linear(machine(isa), randn(40, 70, dtype=dtype), None, group_size)(x)
        assert out.isnan().any(1).tolist() == [i == 1 for i in range(rows)]
        assert out[1].isnan().all()


@pairwise(isa=SETS, dtype=DTYPES, value=[0.0, -0.0, 1e-38, 1e-40])
def test_rows_of_zeros_and_of_almost_zeros_give_the_bias(isa: str, dtype: torch.dtype, value: float) -> None:
    bias = randn(40, dtype=dtype)
    out = linear(machine(isa), randn(40, 70, dtype=dtype), bias, 20)(torch.full((5, 70), value, dtype=dtype))
    assert torch.equal(out, bias.expand(5, 40))


@each_linear_set
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_sums_are_exact(isa: str, sign: int) -> None:
    weight, x = torch.full((17, MAX_SHARED), sign * 127.0), torch.full((2, MAX_SHARED), 127.0)
    x[1, ::2] = -127
    out = linear(machine(isa), weight, None)(x)
    assert out[0].tolist() == [sign * 127.0 * 127.0 * MAX_SHARED] * 17
    assert out[1].tolist() == [0.0] * 17


def test_groups_that_do_not_fit_keep_inputs_in_the_models_dtype() -> None:
    weight, x = randn(20, 60), randn(3, 60, seed=1)
    m = machine(SETS[0])
    for group_size, fits in ((WHOLE_ROW, True), (20, True), (30, False), (6, False)):
        kept = quantise(m, weight, group_size)
        assert has_quantisable_inputs(kept) is fits
        same = torch.equal(PackedLinear(m, kept, None, "int8")(x), PackedLinear(m, kept, None)(x))
        assert same is not fits
    wide = QuantisedWeight(torch.ones(1, MAX_SHARED + 1, dtype=torch.int8), torch.ones(1, 1), WHOLE_ROW, torch.float32)
    assert not has_quantisable_inputs(wide)


@each_dtype
def test_wrong_arguments_are_refused(dtype: torch.dtype) -> None:
    native, m = native_module(dtype), machine(SETS[0])
    integers, scales = torch.zeros(20, 64, dtype=torch.int8), torch.zeros(20, 11)
    with pytest.raises(ValueError, match=r"inputs must be auto or int8; got int4\."):
        native.PackedLinear(m, integers, scales, 6, "int4", None)
    with pytest.raises(ValueError, match=r"group_size must be a multiple of 4; got 6\."):
        native.PackedLinear(m, integers, scales, 6, "int8", None)
    wide = torch.zeros(1, MAX_SHARED + 4, dtype=torch.int8)
    with pytest.raises(ValueError, match=r"at most 131072 inputs of 8 bits can share a scale; got 131076\."):
        native.PackedLinear(m, wide, torch.zeros(1, 1), MAX_SHARED + 4, "int8", None)
