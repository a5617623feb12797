"""What is not of the layouts of GPTQ, AWQ and compressed-tensors is refused by name: settings, tensors, groups."""

from __future__ import annotations

import json
import logging

import pytest
import torch
from safetensors.torch import load_file, save_file

from affine_checkpoints import Form, settings, write_affine
from specserve.engine.model_roles import installed_formats
from specserve.errors import ModelError
from specserve.kernels.torch_kernels import TorchKernels
from specserve.models.loader import ModelLoader
from specserve_workbench.testing.engines import make_engine

DOWN = "model.layers.1.mlp.down_proj"  # [128, 320]
GPTQ, AWQ = Form("gptq", group_size=64), Form("awq", group_size=64)
PACKED, EIGHT = Form("pack-quantized", group_size=64), Form("pack-quantized", bits=8, group_size=64)


def load(path):
    return ModelLoader(formats=installed_formats()).load(path, kernels=TorchKernels())


def int32(*shape):
    return torch.zeros(shape, dtype=torch.int32)


@pytest.mark.parametrize(("form", "changed", "message"), [
    (GPTQ, {"bits": 3}, "bits must be 4 or 8; got 3"),
    (GPTQ, {"bits": "4"}, "bits must be 4 or 8; got '4'"),
    (GPTQ, {"bits": 4.0}, "bits must be 4 or 8; got 4.0"),
    (GPTQ, {"bits": True}, "bits must be 4 or 8; got True"),
    (GPTQ, {"bits": 8}, r"tensor .*scales has shape"),
    (GPTQ, {"group_size": 0}, "group_size must be a number of inputs, or -1 for all; got 0"),
    (GPTQ, {"group_size": -2}, "group_size must be a number of inputs, or -1 for all; got -2"),
    (GPTQ, {"group_size": "64"}, "group_size must be a number of inputs, or -1 for all; got '64'"),
    (GPTQ, {"group_size": True}, "group_size must be a number of inputs, or -1 for all; got True"),
    (GPTQ, {"group_size": 32}, r"scales has shape \[\d, \d+\], but .*qweight says \[(4|10), \d+\]"),
    (GPTQ, {"checkpoint_format": "marlin"}, "checkpoint_format must be 'gptq' or 'gptq_v2'; got 'marlin'"),
    (GPTQ, {"format": "bitblas"}, "format must be 'gptq' or 'gptq_v2'; got 'bitblas'"),
    (GPTQ, {"is_marlin_format": True}, "is_marlin_format must be False; got True"),
    (GPTQ, {"desc_act": "yes"}, "desc_act must be False or True; got 'yes'"),
    (GPTQ, {"pack_dtype": "int16"}, "pack_dtype must be 'int32'; got 'int16'"),
    (GPTQ, {"dynamic": {"-:lm_head": {}}}, "dynamic changes what weights mean and is not read; got {'-:lm_head'"),
    (GPTQ, {"rotation": "hadamard"}, "rotation changes what weights mean"),
    (GPTQ, {"adapter": {"path": "eora"}}, "adapter changes what weights mean"),
    (AWQ, {"bits": 8}, "bits must be 4; got 8"),
    (AWQ, {"bits": None, "w_bit": 3}, "bits must be 4; got 3"),
    (AWQ, {"version": "gemv"}, "version must be 'gemm'; got 'gemv'"),
    (AWQ, {"version": 2}, "version must be 'gemm'; got 2"),
    (AWQ, {"checkpoint_format": "marlin"}, "checkpoint_format must be 'gemm'; got 'marlin'"),
    (AWQ, {"zero_point": 1}, "zero_point must be True or False; got 1"),
    (AWQ, {"zero_point": "no"}, "zero_point must be True or False; got 'no'"),
    (AWQ, {"group_size": None, "q_group_size": 0}, "group_size must be a number of inputs"),
    (AWQ, {"group_size": 128}, r"scales has shape \[\d, \d+\], but .*qweight says \[(1|3), \d+\]"),
], ids=str)  # fmt: skip
def test_settings_that_are_not_read_are_refused_by_name(toy_model, tmp_path, form, changed, message):
    path = write_affine(toy_model, tmp_path / "model", form).path
    rewrite(path, lambda config: {**config, **changed})
    with pytest.raises(ModelError, match=message):
        load(path)


def rewrite(path, edit):
    """edit: from `quantization_config` to another."""
    config = json.loads((path / "config.json").read_text())
    config["quantization_config"] = edit(config["quantization_config"])
    (path / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(("form", "tensors", "message"), [
    (GPTQ, {"qweight": torch.zeros(40, 128)}, r"qweight must be I32 \[in / 8, out\]; got F32 \[40, 128\]"),
    (GPTQ, {"qweight": int32(40)}, r"qweight must be I32 \[in / 8, out\]; got I32 \[40\]"),
    (GPTQ, {"qweight": int32(0, 128)}, r"got I32 \[0, 128\]"),
    (GPTQ, {"qweight": int32(80, 128)}, r"scales has shape \[5, 128\], but .*qweight says \[10, 128\]"),
    (GPTQ, {"qweight": int32(39, 128)}, r"down_proj.(weight|g_idx) has shape \[(128, 312|320)\]"),
    (GPTQ, {"scales": None}, "scales is missing"),
    (GPTQ, {"scales": torch.ones(5, 128).double()}, "scales has type F64; allowed: F16, BF16, F32"),
    (GPTQ, {"qzeros": None}, "qzeros is missing"),
    (GPTQ, {"qzeros": int32(5, 128)}, r"qzeros has shape \[5, 128\], but .*qweight says \[5, 16\]"),
    (GPTQ, {"qzeros": int32(5, 16).long()}, "qzeros has type I64; allowed: I32"),
    (GPTQ, {"g_idx": int32(319)}, r"g_idx has shape \[319\], but .*qweight says \[320\]"),
    (GPTQ._replace(ordered=True), {"g_idx": None}, "g_idx is missing"),
    (GPTQ, {"g_idx": torch.zeros(320)}, "g_idx has type F32; allowed: I32, I64"),
    (GPTQ, {"g_idx": torch.full((320,), 5).int()}, "g_idx has groups from 5 to 5; allowed: 0 to 4"),
    (GPTQ, {"g_idx": torch.full((320,), -1).int()}, "g_idx has groups from -1 to -1; allowed: 0 to 4"),
    (GPTQ, {"weight": torch.ones(128, 320)}, "down_proj.weight is there twice"),
    (AWQ, {"qweight": torch.zeros(320, 16)}, r"qweight must be I32 \[in, out / 8\]; got F32"),
    (AWQ, {"qweight": int32(320, 15)}, r"scales has shape \[5, 128\], but .*qweight says \[5, 120\]"),
    (AWQ, {"qzeros": None}, "qzeros is missing"),
    (AWQ, {"qzeros": int32(5, 128)}, r"qzeros has shape \[5, 128\], but .*qweight says \[5, 16\]"),
    (AWQ, {"scales": torch.ones(5, 64)}, r"scales has shape \[5, 64\], but .*qweight says \[5, 128\]"),
    (AWQ, {"weight": torch.ones(128, 320)}, "down_proj.weight is there twice"),
    (PACKED, {"weight_zero_point": None}, "weight_zero_point is missing"),
    (PACKED, {"weight_zero_point": int32(128, 5)}, r"zero_point has shape \[128, 5\], but .*shape says \[16, 5\]"),
    (PACKED, {"weight_zero_point": torch.zeros(16, 5)}, "weight_zero_point has type F32; allowed: I32"),
    (PACKED, {"weight_packed": int32(128, 41)}, r"weight_packed has shape \[128, 41\], but .*shape says \[128, 40\]"),
    (PACKED, {"weight_packed": int32(128, 80)}, r"weight_packed has shape \[128, 80\], but .*shape says \[128, 40\]"),
    (EIGHT, {"weight_packed": int32(128, 40)}, r"weight_packed has shape \[128, 40\], but .*shape says \[128, 80\]"),
    (PACKED, {"weight_g_idx": torch.full((320,), 7).int()}, "g_idx has groups from 7 to 7; allowed: 0 to 4"),
    (PACKED._replace(ordered=True), {"weight_g_idx": None}, "weight_g_idx is missing"),
    (PACKED, {"weight_g_idx": int32(128)}, r"g_idx has shape \[128\], but .*shape says \[320\]"),
], ids=lambda value: value if isinstance(value, str) else "")  # fmt: skip
def test_tensors_that_do_not_fit_are_refused_by_name(toy_model, tmp_path, form, tensors, message):
    path = write_affine(toy_model, tmp_path / "model", form).path
    file = path / "model.safetensors"
    changed = load_file(file) | {f"{DOWN}.{name}": tensor for name, tensor in tensors.items()}
    save_file({name: tensor for name, tensor in changed.items() if tensor is not None}, file)
    with pytest.raises(ModelError, match=message):
        load(path)


def test_an_order_that_was_never_set_is_none(toy_model, tmp_path):
    """compressed-tensors fills `weight_g_idx` with -1 before it is known."""
    written = write_affine(toy_model, tmp_path / "model", PACKED)
    file = written.path / "model.safetensors"
    save_file(load_file(file) | {f"{DOWN}.weight_g_idx": torch.full((320,), -1).int()}, file)
    expected = written.numbers[DOWN].weight()
    assert torch.equal(load(written.path).projections["layers.1.down_proj"].weight, expected)


def test_a_warning_says_which_maps_are_served_in_the_models_dtype(toy_model, tmp_path, caplog):
    caplog.set_level(logging.WARNING, "specserve")
    load(write_affine(toy_model, tmp_path / "plain", GPTQ).path)
    assert not caplog.records
    load(write_affine(toy_model, tmp_path / "ordered", GPTQ._replace(ordered=True)).path)
    assert (
        "14 of 14 quantised maps, such as model.layers.0.mlp.down_proj, are served in the model's dtype" in caplog.text
    )
    assert "g_idx" in caplog.text


def test_without_the_plugin_the_error_names_it(toy_model, tmp_path):
    for form in (GPTQ, AWQ, PACKED):
        path = write_affine(toy_model, tmp_path / form.method, form).path
        method = settings(form)["quant_method"]
        with pytest.raises(ModelError, match=rf"'{method}'; allowed: none.* pip install specserve-plugin-quantised"):
            make_engine(path)
