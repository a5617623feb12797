"""Checkpoints and settings of models with layers without attention that cannot be: each is refused by name."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from specserve.errors import ConfigError, ModelError
from specserve.models.read_config import read_config
from specserve_workbench.testing.engines import make_engine
from specserve_workbench.testing.toy import write_checkpoint

NET, CONV = "model.layers.0.linear_attn.", "model.layers.0.conv."
OTHERS_FILE = "The weights and config.json are not of the same model"


@pytest.mark.parametrize(
    ("family", "name", "shape", "message"),
    [
        (
            "qwen3_5_text",
            f"{NET}conv1d.weight",
            (96, 1, 3),
            r"has shape \[96, 1, 3\], but config.json says \[96, 1, 4\]",
        ),
        ("qwen3_5_text", f"{NET}dt_bias", (5,), r"has shape \[5\], but config.json says \[4\]"),
        ("qwen3_5_text", f"{NET}norm.weight", (9,), r"has shape \[9\], but config.json says \[8\]"),
        ("qwen3_5_text", f"{NET}A_log", None, f"is missing; 27 others are there. {OTHERS_FILE}"),
        ("lfm2", f"{CONV}conv.weight", (128, 1, 4), r"has shape \[128, 1, 4\], but config.json says \[128, 1, 3\]"),
        ("lfm3", f"{CONV}conv.weight", None, f"is missing; .* others are there. {OTHERS_FILE}"),
        ("lfm2", f"{CONV}conv.bias", (128,), "would change what the model computes"),
        ("qwen3_5_text", "model.layers.0.mamba.A_log", (4,), "would change what the model computes"),
    ],
)
def test_tensors_that_are_not_the_files_are_refused_by_name(tmp_path, family, name, shape, message):
    path = write_checkpoint(tmp_path, architecture=family)
    tensors = load_file(path / "model.safetensors")
    tensors.pop(name, None)
    save_file(tensors | ({} if shape is None else {name: torch.ones(shape)}), path / "model.safetensors")
    with pytest.raises(ModelError, match=f"tensor {name} {message}"):
        make_engine(path)


@pytest.mark.parametrize("kinds", [["mamba", "full_attention"], ["full_attention"], "full_attention", [1, 2]], ids=str)
@pytest.mark.parametrize(
    ("family", "allowed"),
    [
        ("lfm2", "conv or full_attention"),
        ("lfm3", "conv or full_attention or sliding_attention"),
        ("qwen3_5_text", "linear_attention or full_attention"),
    ],
)
def test_layers_of_unknown_kinds_are_refused_with_those_that_there_are(tmp_path, family, allowed, kinds):
    path = write_checkpoint(tmp_path, architecture=family)
    raw = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(raw | {"layer_types": kinds}))
    with pytest.raises(ModelError, match=f"config.json: layer_types must name {allowed} for each of the 2 layers; got"):
        read_config(path)


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        ("1K", r"the states of 8 requests take \d+ bytes, and there is room for 1024. Give more with --state-memory"),
        ("0", "state_memory must be a positive number with K, M or G, such as 512M or 2G; got '0'"),
        ("-5M", "state_memory must be a positive number with K, M or G, such as 512M or 2G; got '-5M'"),
        ("1000000G", r"no room for \d+ bytes of recurrent states; about .* Choose a smaller --state-memory"),
        ("99999999999999G", "state_memory must be a positive number .*; got '99999999999999G'"),
    ],
)
def test_memory_for_states_that_cannot_be_is_refused(tmp_path, memory, message):
    path = write_checkpoint(tmp_path, architecture="qwen3_5_text")
    with pytest.raises(ConfigError, match=message):
        make_engine(path, state_memory=memory)
