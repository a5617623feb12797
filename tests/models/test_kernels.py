"""The torch kernels round like the reference, and a row does not see its neighbours."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb

from specserve.kernels import TorchKernels

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
kernels = TorchKernels()
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@pytest.fixture
def three_threads():
    """Three do not divide 32 rows: torch then cuts a large call inside a row."""
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(1)


@each_dtype
def test_the_norm_has_the_bits_of_transformers(dtype):
    norm = LlamaRMSNorm(320, eps=1e-5).to(dtype)
    x = 3 * torch.randn(32, 320).to(dtype)
    norm.weight.copy_(torch.randn(320))
    ours = kernels.rms_norm(x, norm.weight, 1e-5)
    assert ours.dtype == dtype
    torch.testing.assert_close(ours, norm(x), atol=0, rtol=1e-6 if dtype == torch.float32 else 0)


def test_the_norm_survives_values_whose_square_overflows_half_precision():
    x = torch.full((32, 64), 60000.0, dtype=torch.float16)
    assert torch.equal(kernels.rms_norm(x, torch.ones(64, dtype=torch.float16), 1e-5), torch.ones_like(x))


def test_rotation_is_that_of_transformers():
    q, angles = torch.randn(32, 6, 64), torch.randn(32, 32)
    cos, sin = angles.cos(), angles.sin()
    theirs, _ = apply_rotary_pos_emb(q, q, torch.cat((cos, cos), -1), torch.cat((sin, sin), -1), unsqueeze_dim=1)
    ours = kernels.rotary(q, torch.cat((cos, cos), -1)[:, None], torch.cat((-sin, sin), -1)[:, None])
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)


def test_rotation_is_computed_in_float32_and_rounded_once():
    x, cos, sin = torch.randn(32, 6, 64).bfloat16(), torch.randn(32, 1, 64), torch.randn(32, 1, 64)
    assert torch.equal(kernels.rotary(x, cos, sin), kernels.rotary(x.float(), cos, sin).bfloat16())


def test_a_partial_rotation_passes_the_rest_through():
    x, cos, sin = torch.randn(32, 2, 64), torch.randn(32, 1, 16), torch.randn(32, 1, 16)
    out = kernels.rotary(x, cos, sin)
    assert torch.equal(out[..., 16:], x[..., 16:])
    assert torch.equal(out[..., :16], kernels.rotary(x[..., :16], cos, sin))


def test_activation_multiplies_the_two_halves():
    gate, up = torch.randn(2, 32, 48)
    torch.testing.assert_close(kernels.silu_and_multiply(torch.cat((gate, up), -1)), F.silu(gate) * up)


@each_dtype
@pytest.mark.parametrize("size", [100, 2432, 4850])
def test_a_row_does_not_depend_on_its_place_in_the_tile(three_threads, dtype, size):
    x, gain, weight = (torch.randn(*shape).to(dtype) for shape in ((1, 2 * size), (2 * size,), (40, 2 * size)))
    x = x.expand(32, -1).contiguous()
    heads = x[:, : 100 * (size // 50)].view(32, -1, 20)
    cos, sin = torch.randn(2, 1, 1, 20).expand(-1, 32, -1, -1)
    outs = (
        kernels.linear(x, weight, None),
        kernels.rms_norm(x, gain, 1e-6),
        kernels.silu_and_multiply(x),
        kernels.rotary(heads, cos, sin),
    )
    assert all(torch.equal(out, out[:1].expand_as(out)) for out in outs)


@each_dtype
@pytest.mark.parametrize("row", [0, 15, 31])
def test_a_row_does_not_depend_on_what_its_neighbours_hold(dtype, row):
    weight, gain, x = (torch.randn(*shape).to(dtype) for shape in ((192, 96), (96,), (32, 96)))
    other = torch.randn(32, 96).to(dtype)
    other[row] = x[row]
    functions = (
        lambda x: kernels.linear(x, weight, None),
        lambda x: kernels.rms_norm(x, gain, 1e-6),
        lambda x: kernels.silu_and_multiply(x),
    )
    assert all(torch.equal(function(x)[row], function(other)[row]) for function in functions)
