"""The torch kernels round like the reference, and a row does not see its neighbours."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from transformers.models.gpt_oss.configuration_gpt_oss import GptOssConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts
from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb

from specserve.batch.lora_plan import Segment
from specserve.kernels import torch_kernels as kernels_module
from specserve.kernels.torch_kernels import TorchKernels
from specserve.protocols import KernelSet, LowRankPart

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
def test_the_clamped_activation_is_that_of_gpt_oss(dtype):
    gate_up = (6 * torch.randn(32, 96)).to(dtype)
    experts = GptOssExperts(GptOssConfig(num_local_experts=1, hidden_size=8, intermediate_size=48))
    interleaved = torch.stack(gate_up.float().chunk(2, -1), -1).flatten(1)  # as its files have them
    theirs, ulp = experts._apply_gate(interleaved), 1e-6 if dtype == torch.float32 else 3 * torch.finfo(dtype).eps
    torch.testing.assert_close(kernels.clamped_swiglu(gate_up, 1.702, 7.0).float(), theirs, atol=1e-6, rtol=ulp)
    by_row = KernelSet.clamped_swiglu(kernels, gate_up, 1.702, 7.0)
    torch.testing.assert_close(by_row.float(), theirs, atol=1e-6, rtol=ulp)


@each_dtype
@pytest.mark.parametrize("of_each", [1, 32])
def test_gates_are_rounded_sigmoids_of_as_many_neighbours(dtype, of_each):
    x, gates = torch.randn(32, 96).to(dtype), torch.randn(32, 96 // of_each).to(dtype)
    expected = x * gates.sigmoid().repeat_interleave(of_each, -1)
    ulp = 1e-6 if dtype == torch.float32 else 2 * torch.finfo(dtype).eps
    for gated in (kernels.gate(x, gates), KernelSet.gate(kernels, x, gates)):
        assert gated.dtype == dtype
        torch.testing.assert_close(gated, expected, atol=0, rtol=ulp)


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
        kernels.clamped_swiglu(x, 1.702, 7.0),
        kernels.gate(x, x),
        kernels.gate(x[:, :99], x[:, :3].contiguous()),
        kernels.gate(x[:, : 100 * (size // 50)], x[:, : size // 50]),
        kernels.rotary(heads, cos, sin),
    )
    assert all(torch.equal(out, out[:1].expand_as(out)) for out in outs)


@each_dtype
def test_a_products_row_does_not_depend_on_its_place_whatever_the_number_of_inputs_and_outputs(dtype):
    for size in (*range(1, 34), 50, 65, 130):
        for outs in (*range(1, 17), 33, 96):
            x, weight = torch.randn(1, size).to(dtype).expand(32, -1).contiguous(), torch.randn(outs, size).to(dtype)
            for multiply in maps_of(weight):
                out = multiply(x)
                assert torch.equal(out, out[:1].expand_as(out)), (size, outs)


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
        lambda x: kernels.clamped_swiglu(x, 1.702, 7.0),
        lambda x: kernels.gate(x, x[:, :6]),
    )
    assert all(torch.equal(function(x)[row], function(other)[row]) for function in functions)


def maps_of(weight):
    """A linear map as it is called, and with its weight packed where that gains something."""
    packed = kernels.prepare_linear(weight, None)
    return [lambda x: kernels.linear(x, weight, None)] + ([packed] if packed else [])


@each_dtype
@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_broken_row_reaches_no_other_whatever_the_number_of_inputs(dtype, broken):
    for size in range(1, 201):
        weight, x = torch.randn(48, size).to(dtype), torch.randn(32, size).to(dtype)
        for linear in maps_of(weight):
            expected = linear(x)
            sick = x.clone()
            sick[16], sick[31] = broken, broken
            out = linear(sick)
            assert not out[[16, 31]].isfinite().any(), size
            assert torch.equal(out[:16], expected[:16]), size
            assert torch.equal(out[17:31], expected[17:31]), size


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("size", [1, 31, 50, 144])
def test_torch_gets_whole_tiles_of_inputs_so_that_it_reads_no_next_row(monkeypatch, dtype, size):
    widths = []
    linear, pack = F.linear, kernels_module.packed_linear
    monkeypatch.setattr(F, "linear", lambda x, w, b=None: widths.extend((x.shape[1], w.shape[1])) or linear(x, w, b))
    monkeypatch.setattr(kernels_module, "packed_linear", lambda w, *a: widths.append(w.shape[1]) or pack(w, *a))
    x, weight = torch.randn(32, size).to(dtype), torch.randn(48, size).to(dtype)
    for multiply in maps_of(weight):
        torch.testing.assert_close(multiply(x), linear(x, weight), atol=0.05, rtol=0.05)
    assert len(widths) >= 3
    assert all(width % 32 == 0 for width in widths)


@each_dtype
def test_whole_tiles_are_given_to_torch_as_they_are(dtype):
    x = torch.randn(32, 96).to(dtype)
    assert kernels_module.padded_inputs(x) is x


@each_dtype
@pytest.mark.parametrize("rank", [1, 8, 33])
def test_a_broken_row_reaches_no_other_through_an_adapter(monkeypatch, dtype, rank):
    parts = (LowRankPart(torch.randn(rank, 50).to(dtype), torch.randn(40, rank).to(dtype), slice(0, 40)),)
    segments = [Segment(0, 20, kernels.pack_adapter({"p": parts})), Segment(20, 32, kernels.pack_adapter({"p": parts}))]
    widths, linear = set(), F.linear
    monkeypatch.setattr(F, "linear", lambda x, w, b=None: widths.update((x.shape[1], w.shape[1])) or linear(x, w, b))

    def added(x):
        out = torch.zeros(32, 40, dtype=dtype)
        kernels.add_low_rank("p", x, out, segments)
        return out

    x = torch.randn(32, 50).to(dtype)
    expected = added(x)
    torch.testing.assert_close(expected, linear(linear(x, parts[0].down), parts[0].up), atol=0.1, rtol=0.05)
    x[20] = float("nan")
    out = added(x)
    assert out[20].isnan().all()
    assert torch.equal(out[:20], expected[:20])
    assert torch.equal(out[21:], expected[21:])
    assert dtype == torch.float32 or all(width % 32 == 0 for width in widths)
