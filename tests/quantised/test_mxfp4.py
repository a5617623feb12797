"""Experts of four bits: their numbers are those of transformers' reader, and what is not of the format is refused."""

from __future__ import annotations

import json

import pytest
import torch
from naive_forward import forward, load
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from specserve.engine.model_roles import installed_formats
from specserve.errors import ModelError
from specserve.models.open_weights import open_weights
from specserve.protocols.quantised import QuantisedWeight
from specserve_quantised.mxfp4 import unpacked
from specserve_workbench.testing.engines import run
from specserve_workbench.testing.requests import varied_requests
from specserve_workbench.testing.toy import write_checkpoint

QUANTIZATION = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
NAME = "model.layers.1.mlp.experts.gate_up_proj"
PROMPT = [(11 * i + 3) % 300 for i in range(70)]


def packed(experts: int, outs: int, ins: int, seed: int):
    random = torch.Generator().manual_seed(seed)
    blocks = torch.randint(0, 256, (experts, outs, ins // 32, 16), dtype=torch.uint8, generator=random)
    return blocks, torch.randint(118, 123, blocks.shape[:-1], dtype=torch.uint8, generator=random)


def write_both(path):
    """The same model with experts of four bits and with these numbers in bfloat16."""
    four = write_checkpoint(path / "four", architecture="gpt_oss", dtype="bfloat16")
    tensors = load_file(four / "model.safetensors")
    wide = dict(tensors)
    for seed, name in enumerate(
        [name for name in tensors if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]
    ):
        count, ins, outs = tensors.pop(name).shape
        tensors[f"{name}_blocks"], tensors[f"{name}_scales"] = packed(count, outs, ins, seed)
        wide[name] = convert_moe_packed_tensors(tensors[f"{name}_blocks"], tensors[f"{name}_scales"]).contiguous()
    save_file(tensors, four / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((four / "config.json").read_text())
    (four / "config.json").write_text(json.dumps(config | {"quantization_config": QUANTIZATION}))
    full = write_checkpoint(path / "full", architecture="gpt_oss", dtype="bfloat16")
    save_file(wide, full / "model.safetensors", metadata={"format": "pt"})
    return four, full


def test_numbers_are_those_of_transformers():
    blocks, scales = packed(3, 10, 96, 0)
    theirs = convert_moe_packed_tensors(blocks, scales)  # [experts, in, out]
    assert torch.equal(unpacked(blocks, scales).dense(), theirs.float().mT)
    one = unpacked(torch.tensor([[0x21] * 16]).to(torch.uint8), torch.tensor([128]).to(torch.uint8))
    assert one.dense()[:4].tolist() == [1.0, 2.0, 1.0, 2.0], "0.5 and 1, the lower half of a byte first, times 2"


def test_the_smallest_and_largest_scales_are_exact_and_the_last_is_no_number():
    blocks = torch.full((3, 16), 0x77, dtype=torch.uint8)
    got = unpacked(blocks, torch.tensor([0, 254, 255], dtype=torch.uint8)).dense().view(3, 32)[:, 0]
    assert got[:2].double().tolist() == [6.0 * 2.0**-127, float("inf")]
    assert got[2].isnan()


def test_experts_are_read_in_any_order(tmp_path):
    four, full = write_both(tmp_path)
    source, wide = open_weights(four, QUANTIZATION, installed_formats()), load_file(full / "model.safetensors")
    for expert in (2, 2, 0, 1, 2):
        read = source.read(NAME, slice(expert, expert + 1))
        assert isinstance(read, QuantisedWeight)
        assert torch.equal(read.dense(), wide[NAME][expert : expert + 1].mT.float())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_has_the_logits_of_its_numbers_in_full_width(tmp_path, dtype):
    four, full = write_both(tmp_path)
    assert torch.equal(forward(load(four, dtype=dtype), PROMPT), forward(load(full, dtype=dtype), PROMPT))


def test_the_logits_are_those_of_transformers(tmp_path):
    four, full = write_both(tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(full, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        expected = theirs(torch.tensor([PROMPT])).logits[0]
    torch.testing.assert_close(forward(load(four, dtype="float32"), PROMPT), expected, atol=2e-4, rtol=0)


def test_it_is_served(tmp_path):
    four, full = write_both(tmp_path)
    requests = varied_requests(4)
    assert run(four, requests, plugins=("quantised",)).decided() == run(full, requests).decided()


def test_native_kernels_serve_it(tmp_path):
    """They add in another order where they keep the integers."""
    four, full = write_both(tmp_path)
    requests = varied_requests(4)
    ours = run(four, requests, plugins=("quantised", "cpu"), dtype="float32")
    assert ours.tokens() == run(full, requests, plugins=("cpu",), dtype="float32").tokens()


BLOCKS, SCALES = f"{NAME}_blocks", f"{NAME}_scales"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: {SCALES: None}, rf"tensor {SCALES} is missing"),
        (lambda t: {SCALES: t[SCALES][:, :-1]}, r"_scales has shape \[5, 639, 4\]"),
        (lambda t: {BLOCKS: t[BLOCKS].to(torch.int32)}, r"_blocks must be U8 .*got I32"),
        (lambda t: {BLOCKS: t[BLOCKS][..., :8]}, r"_blocks must be U8 .*groups, 16"),
        (lambda t: {name: t[name][:4] for name in (BLOCKS, SCALES)}, "has 4 matrices, but"),
    ],
    ids=["no scales", "fewer scales", "words", "short groups", "fewer experts"],
)
def test_what_is_not_of_the_format_is_refused(tmp_path, change, message):
    four, _ = write_both(tmp_path)
    tensors = load_file(four / "model.safetensors")
    changed = {name: tensor for name, tensor in (tensors | change(tensors)).items() if tensor is not None}
    contiguous = {name: tensor.contiguous() for name, tensor in changed.items()}
    save_file(contiguous, four / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=message):
        load(four)
