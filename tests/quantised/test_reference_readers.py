"""The numbers that compressed-tensors' own package reads, and converts from AWQ, are those that are served."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from affine_checkpoints import Form, write_affine
from specserve.engine.model_roles import installed_formats
from specserve.models.open_weights import open_weights
from specserve.models.quantised import dense

FORMS = [
    Form("pack-quantized", symmetric=True, group_size=64, scales=torch.bfloat16),
    Form("pack-quantized", symmetric=True, group_size=-1, scales=torch.bfloat16),
    Form("pack-quantized", scales=torch.bfloat16),
    Form("pack-quantized", scales=torch.float16),
    Form("pack-quantized", group_size=-1, scales=torch.float32),
    Form("pack-quantized", bits=8, group_size=64),
    Form("pack-quantized", bits=8, symmetric=True, scales=torch.float32),
    Form("awq", group_size=64),
    Form("awq", symmetric=True),
]


def parts_of(tensors, stem):
    return {name.rpartition(".")[2]: tensor for name, tensor in tensors.items() if name.rpartition(".")[0] == stem}


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_their_reader_reads_the_same_numbers(toy_model, tmp_path, form):
    from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
    from compressed_tensors.entrypoints.convert.converters.autoawq import AutoAWQConverter
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    written = write_affine(toy_model, tmp_path / "model", form)
    tensors = load_file(written.path / "model.safetensors")
    if form.method == "awq":
        tensors = AutoAWQConverter(group_size=form.group_size, zero_point=not form.symmetric).process(tensors)
    own = {"strategy": "channel"} if form.group_size < 0 else {"strategy": "group", "group_size": form.group_size}
    weights = QuantizationArgs(num_bits=form.bits, symmetric=form.symmetric, **own)
    scheme = QuantizationScheme(targets=["Linear"], weights=weights)
    config = json.loads((written.path / "config.json").read_text())
    source = open_weights(written.path, config["quantization_config"], installed_formats())
    for stem in written.numbers:
        parts = parts_of(tensors, stem)
        parts["weight_scale"] = parts["weight_scale"].float()  # it multiplies in the dtype of the scales
        theirs = PackedQuantizationCompressor.decompress(parts, scheme)["weight"]
        assert torch.equal(dense(source.read(f"{stem}.weight")), theirs)
