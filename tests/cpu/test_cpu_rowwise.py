"""RMSNorm, RoPE and activation: near float64, rounded where torch rounds, and a row's bits are its own."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from native_cases import (
    DTYPES,
    U_SUM,
    WHOLE_SETS,
    U,
    assert_near,
    each_dtype,
    each_set,
    machine,
    make_unusual,
    randn,
    same_bits,
    some,
)

from covering import covering
from specserve.kernels.torch_kernels import TorchKernels
from specserve_cpu.kernels import CpuKernels

SIZES = [2, 15, 16, 40, 128, 864, 1001]


def kernels(isa: str, dtype: torch.dtype, threads: int = 1) -> CpuKernels:
    return CpuKernels(machine(isa, threads), str(dtype).removeprefix("torch."))


@covering(
    ("isa", "dtype", "size"), ("isa", "dtype", "scale"), ("size", "scale"),
    isa=WHOLE_SETS, dtype=DTYPES, size=SIZES, scale=[1.0, 1e-4, 1e15],
)  # fmt: skip
def test_the_norm_is_near_float64(isa: str, dtype: torch.dtype, size: int, scale: float) -> None:
    x, weight = randn(9, size, dtype=dtype, scale=scale), randn(size, dtype=dtype, seed=1)
    got = kernels(isa, dtype).rms_norm(x, weight, 1e-6)
    normed = x.double() / (x.double().square().mean(-1, keepdim=True) + 1e-6).sqrt()
    exact = normed * weight.double()
    # normalized values are rounded before the multiplication, as in the checkpoints' own code
    assert_near(got, exact, ((size / 16 + 12) * U_SUM + U[dtype]) * exact.abs(), dtype)


@each_set
@each_dtype
@pytest.mark.parametrize(("dim", "rotary_dim"), [(8, 8), (40, 40), (64, 64), (80, 20), (128, 128), (128, 2)])
def test_rope_is_near_float64(isa: str, dtype: torch.dtype, dim: int, rotary_dim: int) -> None:
    x, cos, sin = randn(9, 3, dim, dtype=dtype), randn(9, 1, rotary_dim, seed=1), randn(9, 1, rotary_dim, seed=2)
    got = kernels(isa, dtype).rotary(x, cos, sin)
    wide, half = x[..., :rotary_dim].double(), rotary_dim // 2
    rotated = wide.roll(half, -1) * sin.double()
    exact = wide * cos.double() + rotated
    assert_near(got[..., :rotary_dim], exact, 2 * U_SUM * (exact.abs() + 2 * rotated.abs()), dtype)
    assert same_bits(got[..., rotary_dim:], x[..., rotary_dim:])


@each_set
@each_dtype
@pytest.mark.parametrize("size", SIZES)
def test_the_activation_is_near_float64(isa: str, dtype: torch.dtype, size: int) -> None:
    gate_up = randn(9, 2 * size, dtype=dtype, scale=4)
    gate, up = gate_up.double().chunk(2, -1)
    exact = torch.nn.functional.silu(gate) * up
    assert_near(kernels(isa, dtype).silu_and_multiply(gate_up), exact, (8 * U_SUM + U[dtype]) * exact.abs(), dtype)


@each_set
@each_dtype
@pytest.mark.parametrize("size", SIZES)
def test_the_clamped_activation_is_near_float64(isa: str, dtype: torch.dtype, size: int) -> None:
    gate_up = randn(9, 2 * size, dtype=dtype, scale=6)
    gate, up = gate_up.double().chunk(2, -1)
    gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0) + 1
    opened = gate * torch.sigmoid(1.702 * gate)
    got = kernels(isa, dtype).clamped_swiglu(gate_up, 1.702, 7.0)
    assert_near(got, opened * up, (40 * U_SUM + 3 * U[dtype]) * (opened.abs() * (up.abs() + 1)), dtype)
    broken = kernels(isa, dtype).clamped_swiglu(torch.full((1, 2), float("nan"), dtype=dtype), 1.702, 7.0)
    assert broken.isnan().all()


@each_set
@each_dtype
def test_the_activation_of_extreme_gates_is_that_of_torch(isa: str, dtype: torch.dtype) -> None:
    gate = torch.tensor([[-1e30, -200, -100, -88, -80, 0, 80, 88, 100, 1e30, float("nan")]], dtype=dtype)
    got = kernels(isa, dtype).silu_and_multiply(torch.cat((gate, torch.ones_like(gate)), -1))
    expected = TorchKernels().silu_and_multiply(torch.cat((gate, torch.ones_like(gate)), -1))
    torch.testing.assert_close(got, expected, atol=1e-35, rtol=4 * U[dtype], equal_nan=True)


@each_set
def test_in_bfloat16_the_norm_rounds_where_torch_does(isa: str) -> None:
    x, weight = randn(64, 320, dtype=torch.bfloat16), randn(320, dtype=torch.bfloat16, seed=1)
    ours, theirs = kernels(isa, torch.bfloat16).rms_norm(x, weight, 1e-5), TorchKernels().rms_norm(x, weight, 1e-5)
    assert (ours != theirs).float().mean() < 1e-3  # sums have another order: a rounding tie is rare


@each_set
@each_dtype
@some
@given(data=st.data())
def test_a_row_has_the_same_bits_among_any_others(isa: str, dtype: torch.dtype, data: st.DataObject) -> None:
    rows, size = data.draw(st.integers(1, 300), "rows"), 2 * data.draw(st.integers(1, 100), "half size")
    row, seed = data.draw(st.integers(0, rows - 1), "row"), data.draw(st.integers(0, 99), "seed")
    x = make_unusual(randn(rows, size, dtype=dtype, seed=seed), seed)
    x[row] = randn(size, dtype=dtype, seed=seed + 1)
    weight, cos, sin = randn(size, dtype=dtype), randn(rows, 1, size, seed=1), randn(rows, 1, size, seed=2)
    one = slice(row, row + 1)
    among, alone = kernels(isa, dtype, data.draw(st.sampled_from((1, 2)), "threads")), kernels(isa, dtype)
    assert same_bits(among.rms_norm(x, weight, 1e-6)[one], alone.rms_norm(x[one].clone(), weight, 1e-6))
    assert same_bits(among.silu_and_multiply(x)[one], alone.silu_and_multiply(x[one].clone()))
    clamped = among.clamped_swiglu(x, 1.702, 7.0)[one]
    assert same_bits(clamped, alone.clamped_swiglu(x[one].clone(), 1.702, 7.0))
    gates = x[:, : size // 2].contiguous()
    assert same_bits(among.gate(x, gates)[one], alone.gate(x[one].clone(), gates[one].clone()))
    heads = x[:, None].contiguous()
    assert same_bits(among.rotary(heads, cos, sin)[one], alone.rotary(heads[one].clone(), cos[one], sin[one]))


@each_set
@each_dtype
def test_strided_views_are_accepted(isa: str, dtype: torch.dtype) -> None:
    ours, wide = kernels(isa, dtype), randn(7, 6, 32, dtype=dtype)
    weight, cos, sin = randn(32, dtype=dtype), randn(7, 1, 32), randn(7, 1, 32, seed=1)
    for view in (wide[:, 1:4], wide[::2, ::2], wide.flip(0)[:, :1], wide.transpose(0, 1)[:, :6].transpose(0, 1)):
        rows = len(view)
        assert same_bits(ours.rms_norm(view, weight, 1e-6), ours.rms_norm(view.contiguous(), weight, 1e-6))
        rotated = ours.rotary(view.contiguous(), cos[:rows], sin[:rows])
        assert same_bits(ours.rotary(view, cos[:rows], sin[:rows]), rotated)
    assert same_bits(ours.silu_and_multiply(wide[:, 1]), ours.silu_and_multiply(wide[:, 1].contiguous()))
