"""GPTQ, AWQ and compressed-tensors with zero points: every number is what the layout says, bit for bit, and served."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from affine_checkpoints import AWQ_ORDER, Form, awq_words, words, write_affine
from specserve.engine.model_roles import installed_formats
from specserve.models.open_weights import open_weights
from specserve.protocols.quantised import Factors, QuantisedWeight
from specserve_quantised.affine import Affine, quantised
from specserve_quantised.words import unpacked
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import assert_lossless, run
from specserve_workbench.testing.requests import TOY_VOCAB, varied_requests
from specserve_workbench.testing.toy import write_checkpoint

BF16, F32 = torch.bfloat16, torch.float32
FORMS = (
    Form("gptq", symmetric=True, group_size=64),
    Form("gptq", group_size=128),
    Form("gptq", group_size=-1),
    Form("gptq", ordered=True, scales=BF16),
    Form("gptq", bits=8),
    Form("gptq_v2", bits=8, symmetric=True, group_size=-1),
    Form("gptq_v2", ordered=True, symmetric=True),
    Form("awq", group_size=64),
    Form("awq", group_size=-1, scales=F32),
    Form("awq", symmetric=True),
    Form("pack-quantized", symmetric=True, group_size=128, scales=BF16),
    Form("pack-quantized", symmetric=True, group_size=-1, scales=F32),
    Form("pack-quantized", scales=BF16),
    Form("pack-quantized", group_size=64, scales=F32),
    Form("pack-quantized", bits=8),
    Form("pack-quantized", bits=8, scales=F32),
    Form("pack-quantized", symmetric=True, ordered=True),
)
IN_FULL = {form for form in FORMS if form.ordered or (form.bits == 8 and form.scales == F32)}


def name_of(form):
    marks = {"sym": form.symmetric, "ordered": form.ordered, str(form.scales)[6:]: form.scales != torch.float16}
    return "-".join(
        [form.method, f"{form.bits}bit", f"g{form.group_size}", *(mark for mark, has in marks.items() if has)]
    )


each_form = pytest.mark.parametrize("form", FORMS, ids=name_of)


def open_affine(path):
    settings = json.loads((path / "config.json").read_text())["quantization_config"]
    return open_weights(path, settings, installed_formats())


@each_form
def test_every_number_is_what_the_layout_says(toy_model, tmp_path, form):
    written = write_affine(toy_model, tmp_path / "model", form)
    source = open_affine(written.path)
    assert len(written.numbers) == 14
    for stem, numbers in written.numbers.items():
        expected, name = numbers.weight(), f"{stem}.weight"
        assert source.find(name).shape == expected.shape
        for rows in (slice(None), slice(8, 40), slice(1, 60, 2)):
            read = source.read(name, rows)
            assert isinstance(read, QuantisedWeight) == source.find(name).quantised == (form not in IN_FULL)
            dense = read.dense() if isinstance(read, QuantisedWeight) else read
            assert torch.equal(dense, expected[rows])
    kept = [name for name in source.tensors if name.endswith(("norm.weight", "lm_head.weight", "embed_tokens.weight"))]
    assert len(source.tensors) == 14 + len(kept)
    in_file = sum(tensor.nbytes for tensor in load_file(written.path / "model.safetensors").values())
    assert sum(tensor.num_bytes for tensor in source.tensors.values()) == in_file


@each_form
def test_four_bits_are_enough_for_what_is_kept(toy_model, tmp_path, form):
    source = open_affine(write_affine(toy_model, tmp_path / "model", form).path)
    for name in (name for name, tensor in source.tensors.items() if tensor.quantised):
        weight = source.read(name)
        assert (weight.offsets is None) == (form.symmetric or form.scales == F32)
        if form.bits == 8:
            assert weight.levels is None
            continue
        assert set(weight.integers.unique().tolist()) <= set(weight.levels)
        assert len(weight.levels) == 16 or (form.scales == F32 and not form.symmetric)
        assert list(weight.levels) == sorted(weight.levels)


@pytest.mark.parametrize("kind", [torch.float16, BF16], ids=["f16", "bf16"])
def test_offsets_lose_nothing_whatever_the_scale(kind):
    """All scales that can be stored, with every integer and every zero point."""
    bits = torch.arange(1 << 16).to(torch.int32).to(torch.int16)
    scales = bits.view(kind)
    scales = scales[scales.float().abs() < 1e36]  # beyond, a product is infinite
    for zero in range(16):
        zeros = torch.full((len(scales), 1), zero, dtype=torch.uint8)
        integers = torch.arange(16, dtype=torch.uint8).expand(len(scales), 16)
        weight = quantised(Affine(integers, zeros, scales[:, None], 4), 16)
        assert isinstance(weight.offsets, Factors) == (zero != 8)
        assert torch.equal(weight.dense(), scales.float()[:, None] * (integers.short() - zero))
    for zero in (0, 1, 100, 128, 255):
        integers = torch.arange(256, dtype=torch.uint8).expand(64, 256)
        some, zeros = scales[:: len(scales) // 64][:64, None], torch.full((64, 1), zero, dtype=torch.uint8)
        weight = quantised(Affine(integers, zeros, some, 8), 256)
        assert torch.equal(weight.dense(), some.float() * (integers.short() - zero))


def test_words_have_the_first_integer_in_their_lowest_bits():
    eight = torch.tensor([[1, 2, 3, 4, 5, 6, 7, 8]])
    assert [f"{word & 0xFFFFFFFF:08x}" for word in words(eight, 4)[0].tolist()] == ["87654321"]
    assert [f"{word & 0xFFFFFFFF:08x}" for word in words(eight, 8)[0].tolist()] == ["04030201", "08070605"]
    assert [f"{word & 0xFFFFFFFF:08x}" for word in awq_words(eight)[0].tolist()] == ["86427531"]
    assert AWQ_ORDER == (0, 2, 4, 6, 1, 3, 5, 7)


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (3, 1), (2, 3)], ids=str)
def test_words_are_read_in_any_layout_of_memory(shape):
    numbers = torch.arange(shape[0] * shape[1] * 8).reshape(shape[0], -1) % 16
    packed = words(numbers, 4)
    assert torch.equal(unpacked(packed, 4).long(), numbers)
    assert torch.equal(unpacked(packed.t().contiguous().t(), 4).long(), numbers)
    assert torch.equal(unpacked(torch.stack((packed, packed), -1)[..., 0], 4).long(), numbers)


def test_the_largest_zero_point_of_the_first_gptq_format_is_zero(tmp_path):
    """Its writers subtract one from zero, too."""
    positive = write_checkpoint(tmp_path / "positive")
    weights = load_file(positive / "model.safetensors")
    save_file({name: tensor.abs() for name, tensor in weights.items()}, positive / "model.safetensors")
    written = write_affine(positive, tmp_path / "all", Form("gptq"))
    name, numbers = next(iter(written.numbers.items()))
    assert not numbers.zeros.any()
    assert set(load_file(written.path / "model.safetensors")[f"{name}.qzeros"].unique().tolist()) == {-1}
    assert torch.equal(open_affine(written.path).read(f"{name}.weight").dense(), numbers.weight())


@each_form
def test_text_is_that_of_the_same_numbers_in_float32(toy_model, tmp_path, form):
    written = write_affine(toy_model, tmp_path / "model", form)
    for dtype in ("float32", "bfloat16"):
        ours = run(written.path, varied_requests(6), plugins=("quantised",), dtype=dtype)
        assert ours.decided() == run(written.plain, varied_requests(6), dtype=dtype).decided()


@each_form
@pytest.mark.parametrize("plugins", [("quantised",), ("quantised", "cpu")], ids=["torch", "cpu"])
def test_drafts_are_lossless(toy_model, tmp_path, form, plugins):
    served = assert_lossless(
        write_affine(toy_model, tmp_path / "model", form).path,
        varied_requests(6),
        lambda outputs: NoisyDrafter(outputs, p=0.7, max_width=8, vocab_size=TOY_VOCAB),
        plugins=plugins,
        dtype="bfloat16",
    )
    assert served.metrics.num_accepted_tokens > 30


@pytest.mark.parametrize("form", [FORMS[0], FORMS[1], FORMS[7], FORMS[12]], ids=name_of)
def test_native_kernels_give_the_text_of_the_same_numbers(toy_model, tmp_path, form):
    written = write_affine(toy_model, tmp_path / "model", form)
    options = {"cpu": {"activations": "float"}}
    ours = run(written.path, varied_requests(6), plugins=("quantised", "cpu"), dtype="float32", plugin_options=options)
    theirs = run(written.plain, varied_requests(6), plugins=("cpu",), dtype="float32")
    assert ours.tokens() == theirs.tokens()
