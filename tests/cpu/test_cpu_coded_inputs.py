"""Weights of few bits: which forms they get, 4 bits made from a weight, and what the native module refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from coded_forms import FORMS, TABLE, Form, Numbers, coded
from native_cases import SETS, each_dtype, machine, randn, same_bits

from specserve.protocols.quantised import QuantisedWeight, StackedWeight
from specserve_cpu import _native
from specserve_cpu.attention import native_module
from specserve_cpu.coded import BLOCK, CodedLinear, inputs_of, levels_of, quantise_to_four
from specserve_cpu.kernels import CpuKernels
from specserve_cpu.linear import PackedLinear, ReadableLinear

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.protocols.quantised import Activations
    from specserve_cpu.options import Inputs

INT8, UINT8 = torch.int8, torch.uint8


# --- 4 bits made from a weight --------------------------------------------------------------------


def to_half(x: Tensor) -> Tensor:
    return x.clamp(-65504, 65504).half().float()


def four(weight: Tensor) -> QuantisedWeight:
    """The weight in 4 bits, after checks of what every result is."""
    made = quantise_to_four(weight)
    assert (made.group_size, made.levels, made.activations) == (BLOCK, tuple(range(16)), "int8")
    assert (made.integers.shape, made.integers.dtype, made.dtype) == (weight.shape, INT8, weight.dtype)
    assert 0 <= made.integers.min() <= made.integers.max() <= 15
    assert not made.integers[made.by_input(made.scales) == 0].any()
    for numbers in (made.scales, made.offsets):
        assert torch.equal(numbers, to_half(numbers))
    return made


@each_dtype
@pytest.mark.parametrize("ins", [1, 31, 32, 33, 130])
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-6])
def test_scales_and_offsets_span_the_group_and_integers_are_the_nearest(
    dtype: torch.dtype, ins: int, scale: float
) -> None:
    weight = randn(40, ins, dtype=dtype, scale=scale)
    made = four(weight)
    for i, group in enumerate(weight.float().split(32, 1)):
        least, most = group.amin(1), group.amax(1)
        offsets = to_half(least)
        scales = to_half(((most - offsets) / 15).clamp(min=0))
        assert torch.equal(made.offsets[:, i], offsets)
        assert torch.equal(made.scales[:, i], scales)
        numbers = offsets[:, None] + scales[:, None] * torch.arange(16)  # [out, 16]
        best = (group[..., None].double() - numbers[:, None].double()).abs().amin(-1)
        chosen = made._replace(dtype=torch.float32).dense()[:, 32 * i : 32 * i + 32]
        errors = (group.double() - chosen.double()).abs()
        assert (errors <= best * (1 + 1e-5) + 1e-9 * scale).all()


def test_numbers_that_fit_are_kept_exactly() -> None:
    numbers = Numbers(torch.float16)
    given = coded(Form(tuple(range(16)), 32, numbers, numbers), 20, 96)
    given = given._replace(scales=given.scales.abs())
    for begin in range(0, 96, 32):
        given.integers[:, begin], given.integers[:, begin + 1] = 0, 15
    # the greatest number, and so the scale, may be rounded in float32
    assert torch.equal(four(given.dense()).integers, given.integers)
    torch.testing.assert_close(four(given.dense()).dense(), given.dense(), rtol=2e-3, atol=1e-5)
    eighths = given._replace(scales=torch.full_like(given.scales, 0.125), offsets=torch.full_like(given.scales, -3.5))
    assert torch.equal(four(eighths.dense()).dense(), eighths.dense())


@each_dtype
@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, -0.3, 2049.0, 1e-7, 3e-8, 1e-30, 70000.0, -1e6])
def test_a_group_of_equal_numbers_becomes_the_nearest_that_16_bits_have(dtype: torch.dtype, value: float) -> None:
    weight = torch.full((3, 45), value, dtype=dtype)
    made = four(weight)
    exact, nearest = weight[0, 0].float(), to_half(weight[0, 0].float())
    errors = (made._replace(dtype=torch.float32).dense() - exact).abs()
    assert errors.max() <= (nearest - exact).abs()


@each_dtype
def test_numbers_too_large_for_16_bits_become_the_largest(dtype: torch.dtype) -> None:
    weight = torch.tensor([[-3e38, 3e38, 0.0], [-1e5, -7e4, 7e4], [-2e5, 0, 3.0]], dtype=dtype)
    made = four(weight)
    assert made.scales[:, 0].tolist() == [65504.0, to_half(made.scales)[1, 0].item(), made.scales[2, 0].item()]
    assert (made.offsets == -65504).all()
    assert made.dense().isfinite().all()
    assert made.integers[:, 0].tolist() == [0, 0, 0]


@each_dtype
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("column", [0, 31, 32, 49])
def test_a_weight_that_is_not_finite_is_refused(dtype: torch.dtype, value: float, column: int) -> None:
    weight = randn(20, 50, dtype=dtype)
    weight[7, column] = value
    with pytest.raises(ValueError, match="the weight is not finite"):
        quantise_to_four(weight)


# --- forms and inputs -----------------------------------------------------------------------------


def kernels(dtype: str = "float32", activations: Inputs = "auto") -> CpuKernels:
    return CpuKernels(machine(SETS[0]), dtype, "auto", activations)


@pytest.mark.parametrize(("levels", "bits", "shown"), [
    (None, 8, [-128, 127]), (range(16), 4, [0, 15]), (range(-8, 9), 5, [-8, 8]), (range(-32, 32), 6, [-32, 31]),
    (range(-32, 33), 8, [-32, 32]), (TABLE, 4, [*TABLE]), ((-1, 1), 4, [-1, 1]), ((7,), 4, [7, 7]),
    ((*range(16), 20), 8, [-128, 127]),
])  # fmt: skip
def test_consecutive_levels_need_no_table(levels: Any, bits: int, shown: list[int]) -> None:
    assert levels_of(levels and tuple(levels)) == (bits, shown)
    weight = coded(Form(levels and tuple(levels), 32, Numbers(torch.float32)), 20, 64)
    assert torch.equal(CodedLinear(machine(SETS[0]), (weight,), None, "int8").rows(torch.arange(20)), weight.dense())


@pytest.mark.parametrize(("form", "made_for", "option", "inputs"), [
    ("4 bits", "auto", "auto", "int8"), ("6 bits", "auto", "auto", "int8"), ("8 bits", "auto", "auto", "auto"),
    ("8 bits", "int8", "auto", "int8"), ("4 bits", "int8", "float", "auto"), ("8 bits", "int8", "float", "auto"),
    ("4 bits", "auto", "int8", "int8"), ("8 bits", "auto", "int8", "int8"),
])  # fmt: skip
def test_fewer_than_8_bits_are_multiplied_by_8_bits_unless_the_option_says_otherwise(
    form: str, made_for: Activations, option: Inputs, inputs: Activations
) -> None:
    weight = coded(FORMS[form], 20, 64, activations=made_for)
    assert inputs_of(weight, option) == inputs
    packed = kernels(activations=option).prepare_stacked(StackedWeight((weight,)), None)
    x = randn(3, 64)
    assert same_bits(packed(x), CodedLinear(machine(SETS[0]), (weight,), None, inputs)(x))


def test_parts_that_become_one_form_are_multiplied_by_what_they_were_made_for() -> None:
    parts = tuple(coded(FORMS["4 bits"], 20, 64, activations="auto", seed=i) for i in range(2))
    packed, x = kernels().prepare_stacked(StackedWeight(parts), None), randn(3, 64)
    each = [CodedLinear(machine(SETS[0]), (part,), None, "int8")(x) for part in parts]
    assert torch.equal(packed(x), torch.cat(each, 1))


@pytest.mark.parametrize("size", [8, 24, 40, 48])
@each_dtype
def test_groups_of_other_sizes_are_not_packed_as_few_bits(dtype: torch.dtype, size: int) -> None:
    weight = coded(Form(tuple(range(16)), size, Numbers(torch.float32)), 20, 96, dtype, activations="auto")
    of_dtype = kernels(str(dtype).removeprefix("torch."))
    assert of_dtype.prepare_stacked(StackedWeight((weight,)), None) is None
    packed = of_dtype.prepare_quantised(weight, None)
    assert type(packed) is ReadableLinear
    x = randn(3, 96, dtype=dtype)
    torch.testing.assert_close(packed(x).float(), x.float() @ weight.dense().float().T, rtol=0.05, atol=2)


@pytest.mark.parametrize(
    ("made_for", "option", "groups", "kind"),
    [
        ("int8", "auto", 3, CodedLinear),
        ("auto", "int8", 3, CodedLinear),
        ("auto", "auto", 3, PackedLinear),
        ("int8", "auto", 1, PackedLinear),  # inputs have one scale a row, as the checkpoint asks for
    ],
)
def test_weights_of_8_bits_in_groups_are_coded_where_inputs_have_8_bits(
    made_for: Activations, option: Inputs, groups: int, kind: type[CodedLinear | PackedLinear]
) -> None:
    weight = coded(Form(None, 96 // groups, Numbers(torch.float32)), 20, 96, activations=made_for)
    assert isinstance(kernels(activations=option).prepare_quantised(weight, None), kind)


# --- refusals -------------------------------------------------------------------------------------


def part(**changes: Any) -> _native.CodedPart:
    """20 outputs, 64 inputs, two groups of 32; with other arguments."""
    given: dict[str, Any] = {
        "integers": torch.zeros(20, 64, dtype=INT8), "group_size": 32, "bits": 4, "levels": [0, 15],
        "scale_units": torch.ones(20, 2), "scale_steps": None, "offset_units": None, "offset_steps": None,
    }  # fmt: skip
    return _native.CodedPart(**given | changes)


def steps(dtype: torch.dtype = UINT8, groups: int = 2) -> Tensor:
    return torch.ones(20, groups, dtype=dtype)


@pytest.mark.parametrize(("changes", "message"), [
    ({"integers": torch.zeros(20, 64, dtype=UINT8)}, r"integers must be int8 \[any, any\]; got uint8 \[20, 64\]"),
    ({"integers": torch.zeros(20, dtype=INT8)}, r"integers must be int8 \[any, any\]; got int8 \[20\]"),
    ({"integers": torch.zeros(64, 20, dtype=INT8).T}, r"integers must be int8 \[any, any\], contiguous"),
    ({"integers": torch.zeros(0, 64, dtype=INT8)}, r"integers must have outputs and inputs; got \[0, 64\]\."),
    ({"integers": torch.zeros(20, 0, dtype=INT8)}, r"integers must have outputs and inputs; got \[20, 0\]\."),
    *(({"group_size": n}, rf"group_size must be 16 or a multiple of 32; got {n}\.") for n in (-32, 0, 8, 24, 48)),
    *(({"bits": n}, rf"bits must be 4, 5, 6 or 8; got {n}\.") for n in (-4, 0, 3, 7, 9)),
    *(({"levels": levels}, r"levels must be 2 to 16 ascending integers of 8 bits\.")
      for levels in ([], [3], [*range(17)], [5, 4], [0, 2, 1], [-129, 0], [0, 128])),
    ({"levels": [0, 16]}, r"levels do not fit into 4 bits\."),
    ({"bits": 5, "levels": [-16, 16]}, r"levels do not fit into 5 bits\."),
    ({"bits": 6, "levels": [-33, 31]}, r"levels do not fit into 6 bits\."),
    *(({"bits": n, "levels": [0, 1, 3]}, rf"levels do not fit into {n} bits\.") for n in (5, 6, 8)),
    ({"scale_units": torch.ones(20, 3)}, r"scales must be float32 \[20, 2\]; got float32 \[20, 3\]"),
    ({"scale_units": torch.ones(19, 2)}, r"scales must be float32 \[20, any\]; got float32 \[19, 2\]"),
    ({"scale_units": torch.ones(20, 2).half()}, r"scales must be float32 \[20, any\]; got float16"),
    ({"group_size": 16}, r"scales must be float32 \[20, 4\]; got float32 \[20, 2\]"),
    ({"scale_units": torch.ones(20, 3), "scale_steps": steps()}, "scales: 3 units cannot be shared by 2 groups"),
    ({"scale_units": torch.ones(20, 0), "scale_steps": steps()}, "scales: 0 units cannot be shared by 2 groups"),
    ({"scale_steps": steps(UINT8, 3)}, r"scales must be uint8 \[20, 2\]; got uint8 \[20, 3\]"),
    ({"scale_steps": steps(INT8, 1)}, r"scales must be int8 \[20, 2\]; got int8 \[20, 1\]"),
    ({"scale_steps": steps(torch.int16)}, r"scales must be uint8 \[20, 2\]; got int16 \[20, 2\]"),
    ({"offset_units": torch.ones(20, 1)}, r"offsets must be float32 \[20, 2\]; got float32 \[20, 1\]"),
    ({"offset_units": torch.ones(20, 1), "offset_steps": steps(INT8, 3)}, r"offsets must be int8 \[20, 2\]"),
])  # fmt: skip
def test_a_wrong_part_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        packed_of([part(**changes)])


def packed_of(parts: list[_native.CodedPart], inputs: str = "int8", bias: Tensor | None = None) -> Any:
    return native_module(torch.float32).PackedLinear(machine(SETS[0]), parts, inputs, bias)


def test_wrong_parts_together_are_refused() -> None:
    with pytest.raises(ValueError, match=r"parts must not be empty\."):
        packed_of([])
    narrow = part(integers=torch.zeros(20, 32, dtype=INT8), scale_units=torch.ones(20, 1))
    wide = part(integers=torch.zeros(16, 64, dtype=INT8), scale_units=torch.ones(16, 2))
    packed_of([wide, wide, part()])
    with pytest.raises(ValueError, match=r"parts must have as many inputs as each other\."):
        packed_of([wide, narrow])
    with pytest.raises(ValueError, match=r"all parts but the last must have a multiple of 16 outputs; got 20\."):
        packed_of([wide, part(), wide])
    with pytest.raises(ValueError, match=r"inputs must be auto or int8; got int4\."):
        packed_of([wide], "int4")
    with pytest.raises(ValueError, match=r"bias must be float32 \[36\]; got float32 \[20\]"):
        packed_of([wide, part()], bias=torch.zeros(20))


def test_wrong_rows_are_refused() -> None:
    packed, out = packed_of([part()]), torch.full((2, 64), 7.0)
    for wrong in (-1, 20, 2**40):
        with pytest.raises(ValueError, match=rf"outputs must be from 0 to 19; got {wrong}\."):
            packed.rows(torch.tensor([3, wrong]), out)
    with pytest.raises(ValueError, match=r"outputs must be int64 \[any\]; got int32 \[2\]"):
        packed.rows(torch.tensor([3, 4], dtype=torch.int32), out)
    with pytest.raises(ValueError, match=r"out must be float32 \[3, 64\]; got float32 \[2, 64\]"):
        packed.rows(torch.tensor([3, 4, 5]), out)
    assert (out == 7).all()
    dense = PackedLinear(machine(SETS[0]), randn(20, 64), None)
    with pytest.raises(ValueError, match=r"only weights of 8 bits and fewer can be read again\."):
        dense.native.rows(torch.tensor([3, 4]), out)
