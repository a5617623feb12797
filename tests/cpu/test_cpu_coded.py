"""Linear maps with weights of few bits: sums near float64 as defined, the same bits in every batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from coded_forms import FORMS, coded, rows_of
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
from test_cpu_quantised_inputs import FUSED, quantised_inputs

from covering import covering, pairwise
from specserve.protocols.quantised import QuantisedWeight, StackedWeight, numbers_of
from specserve_cpu.coded import BLOCK, CodedLinear
from specserve_cpu.kernels import CpuKernels

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.protocols.quantised import Activations
    from specserve_cpu import _native

SHAPES = [(1, 1), (16, 16), (31, 33), (33, 5), (64, 100), (417, 50), (864, 130)]
"""Inputs and outputs."""
each_form = pytest.mark.parametrize("form", FORMS)
INPUTS = ["auto", "int8"]
each_inputs = pytest.mark.parametrize("inputs", INPUTS)


def linear(m: _native.Machine, weight: QuantisedWeight, bias: Tensor | None, inputs: Activations) -> CodedLinear:
    return CodedLinear(m, (weight,), bias, inputs)


def magnitude(weight: QuantisedWeight) -> Tensor:
    """What is added up of a weight, without signs: [out, in] float64."""
    positive = weight.with_numbers(weight.integers.int().abs(), lambda numbers: numbers_of(numbers).abs())
    return positive._replace(dtype=torch.float64).dense()


@covering(
    ("form", "inputs", "dtype"), ("isa", "inputs", "dtype"), ("form", "isa"),
    form=FORMS, isa=SETS, inputs=INPUTS, dtype=DTYPES,
)  # fmt: skip
def test_sums_are_near_float64(isa: str, dtype: torch.dtype, inputs: Activations, form: str) -> None:
    for ins, outs in SHAPES:
        weight, x = coded(FORMS[form], outs, ins, dtype), randn(37, ins, dtype=dtype, seed=1)
        bias = randn(outs, dtype=dtype, seed=2) if ins % 3 else None
        exact_weight = weight._replace(dtype=torch.float32).dense().double()
        multiplied = quantised_inputs(x, BLOCK) if inputs == "int8" else x.double()
        # a product of a group is rounded when it is added, and so is its offset's; their factors were, too
        roundings = 2 * -(-ins // 16) + 6 if inputs == "int8" else ins + 2
        if inputs == "int8":  # the weights themselves are never rounded
            exact_weight = unrounded(weight)
        exact = multiplied @ exact_weight.T + (0 if bias is None else bias.double())
        size = multiplied.abs() @ magnitude(weight).T + (0 if bias is None else bias.double().abs())
        assert_near(linear(machine(isa), weight, bias, inputs)(x), exact, roundings * U_SUM * size, dtype)


def unrounded(weight: QuantisedWeight) -> Tensor:
    """[out, in] float64; scales and offsets are those of float32."""
    scaled = weight.integers.double() * weight.by_input(weight.scales).double()
    return scaled if weight.offsets is None else scaled + weight.by_input(weight.offsets).double()


def check_row(isa: str, dtype: torch.dtype, inputs: Activations, data: st.DataObject) -> None:
    form = FORMS[data.draw(st.sampled_from([*FORMS]), "form")]

    def make(m: _native.Machine, weight: Tensor, bias: Tensor) -> CodedLinear:
        return linear(m, coded(form, *weight.shape, dtype), bias, inputs)

    check_row_of_linear(make, isa, dtype, data)


@covering(("isa", "dtype"), ("isa", "inputs"), ("inputs", "dtype"), isa=SETS, dtype=DTYPES, inputs=INPUTS)
@some
@given(data=st.data())
def test_a_row_has_the_same_bits_among_any_others(
    isa: str, dtype: torch.dtype, inputs: Activations, data: st.DataObject
) -> None:
    check_row(isa, dtype, inputs, data)


@pytest.mark.sweep
@each_linear_set
@each_dtype
@each_inputs
@many
@given(data=st.data())
def test_a_row_has_the_same_bits_among_very_many_others(
    isa: str, dtype: torch.dtype, inputs: Activations, data: st.DataObject
) -> None:
    check_row(isa, dtype, inputs, data)


@covering(("form", "inputs"), ("isa", "inputs"), form=FORMS, isa=SETS, inputs=INPUTS)
def test_the_number_of_rows_changes_no_bit(isa: str, inputs: Activations, form: str) -> None:
    x = randn(200, 96, dtype=torch.bfloat16)
    packed = linear(machine(isa), coded(FORMS[form], 50, 96, torch.bfloat16), None, inputs)
    whole = packed(x)
    for rows in (*range(1, 10), 31, 32, 33, 63, 64, 65, 128, 130):
        assert same_bits(packed(x[:rows]), whole[:rows])
        assert same_bits(packed(x[200 - rows :]), whole[200 - rows :])


@covering(("form", "inputs"), ("isa", "inputs"), form=FORMS, isa=SETS, inputs=INPUTS)
def test_an_output_does_not_depend_on_the_other_outputs(isa: str, inputs: Activations, form: str) -> None:
    weight = coded(FORMS[form], 200, 96)
    for x in (randn(5, 96), randn(70, 96)):
        whole = linear(machine(isa, 3), weight, None, inputs)(x)
        for outs in (1, 16, 17, 130):
            part = linear(machine(isa), rows_of(weight, slice(outs)), None, inputs)(x)
            assert same_bits(whole[:, :outs], part)


@pytest.mark.skipif(len(ALIKE) < 2, reason="the processor has no two of them")
@each_dtype
@each_inputs
@each_form
def test_instruction_sets_have_the_same_bits(dtype: torch.dtype, inputs: Activations, form: str) -> None:
    weight, bias = coded(FORMS[form], 100, 300, dtype), randn(100, dtype=dtype)
    for rows in (1, 3, 5, 17, 130):
        x = randn(rows, 300, dtype=dtype, seed=rows)
        sets = FUSED if inputs == "int8" else ALIKE
        first, *others = [linear(machine(isa), weight, bias, inputs)(x) for isa in sets]
        assert all(same_bits(first, other) for other in others)


@pairwise(isa=SETS, inputs=INPUTS, value=[float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_reaches_every_output_of_its_row_and_no_other_row(
    isa: str, inputs: Activations, value: float
) -> None:
    for form in FORMS.values():
        for rows in (3, 40):
            x = randn(rows, 70)
            x[1, 69] = value
            out = linear(machine(isa), coded(form, 40, 70), None, inputs)(x)
            assert (~out.isfinite()).any(1).tolist() == [i == 1 for i in range(rows)]
            assert out[1].isnan().all() or inputs == "auto"
            assert not out[1].isfinite().any()


@pairwise(isa=SETS, dtype=DTYPES, value=[0.0, -0.0, 1e-38, 1e-40])
def test_rows_of_zeros_and_of_almost_zeros_give_the_bias(isa: str, dtype: torch.dtype, value: float) -> None:
    bias = randn(40, dtype=dtype)
    for form in FORMS.values():
        packed = linear(machine(isa), coded(form, 40, 70, dtype), bias, "int8")
        assert torch.equal(packed(torch.full((5, 70), value, dtype=dtype)), bias.expand(5, 40))


@each_linear_set
def test_inputs_are_rounded_by_blocks_of_32_to_the_nearest_and_halves_to_even(isa: str) -> None:
    x = torch.zeros(1, 40)
    x[0, :8] = torch.tensor([127.0, -127.0, 0.5, 1.5, -2.5, 2.49, 126.51, -0.51])
    x[0, 32:] = x[0, :8] / 4  # another block, and another scale
    identity = QuantisedWeight(torch.eye(40, dtype=torch.int8), torch.ones(40, 2), 32, x.dtype, levels=(0, 1))
    rounded = [127.0, -127.0, 0.0, 2.0, -2.0, 2.0, 127.0, -1.0]
    expected = rounded + [0.0] * 24 + [number / 4 for number in rounded]
    assert linear(machine(isa), identity, None, "int8")(x)[0].tolist() == expected


@each_dtype
@each_inputs
@each_form
def test_rows_are_those_of_the_definition(dtype: torch.dtype, inputs: Activations, form: str) -> None:
    for ins, outs in SHAPES:
        weight = coded(FORMS[form], outs, ins, dtype)
        packed = linear(machine(SETS[0], 2), weight, None, inputs)
        wanted = torch.randint(outs, (70,), generator=torch.Generator().manual_seed(3))
        assert same_bits(packed.rows(wanted), weight.dense()[wanted])
        assert packed.rows(wanted[:0]).shape == (0, ins)


@each_linear_set
@each_dtype
@each_inputs
def test_parts_of_a_stack_have_the_bits_of_maps_of_their_own(isa: str, dtype: torch.dtype, inputs: Activations) -> None:
    outs = (16, 48, 32, 64, 16, 80, 32)
    for names in ([*FORMS][:7], [*FORMS][-7:]):
        parts = [coded(FORMS[name], out, 96, dtype) for name, out in zip(names, outs, strict=True)]
        parts[-1] = rows_of(parts[-1], slice(29))
        bias = randn(sum(part.shape[0] for part in parts), dtype=dtype)
        biases = bias.split([part.shape[0] for part in parts])
        for x in (randn(1, 96, dtype=dtype), randn(37, 96, dtype=dtype)):
            stack = CodedLinear(machine(isa, 2), parts, bias, inputs)(x)
            each = [linear(machine(isa), part, own.clone(), inputs)(x) for part, own in zip(parts, biases, strict=True)]
            assert same_bits(stack, torch.cat(each, 1))


@each_dtype
@pytest.mark.parametrize("activations", ["int8", "float"])
def test_parts_that_meet_within_a_panel_become_one_form_with_the_same_numbers(
    dtype: torch.dtype, activations: str
) -> None:
    kernels = CpuKernels(machine(SETS[0]), str(dtype).removeprefix("torch."), "auto", activations)
    names = [name for name in FORMS if FORMS[name].group_size != 16]
    for some_of in (names, [*names, "6 bits, signed steps"]):
        parts = tuple(coded(FORMS[name], 3 + 7 * i, 100, dtype, seed=i) for i, name in enumerate(some_of))
        packed = kernels.prepare_stacked(StackedWeight(parts), None)
        dense, x = torch.cat([part.dense() for part in parts]), randn(9, 100, dtype=dtype)
        assert torch.equal(packed.rows(torch.arange(len(dense))), dense)  # but for the sign of zeros
        inputs: Activations = "int8" if activations == "int8" else "auto"
        each = torch.cat([linear(machine(SETS[0]), part, None, inputs)(x) for part in parts], 1)
        if some_of is names or activations == "float":  # groups of 16 are added up in another order
            assert torch.equal(packed(x), each)
        else:
            torch.testing.assert_close(packed(x).float(), each.float(), rtol=0.02, atol=1e-5 * each.abs().max().item())
