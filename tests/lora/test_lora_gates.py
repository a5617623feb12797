"""Adapters of a model with gates and convolutions are PEFT's."""

from __future__ import annotations

import json

import pytest
from test_lora_parity import assert_parity, our_logits, save_with_peft

from specserve.errors import ConfigError
from specserve_workbench.testing.toy import write_checkpoint
from toy_adapters import write_adapter

IGNORED = (DeprecationWarning, FutureWarning, RuntimeWarning, UserWarning)
pytestmark = pytest.mark.filterwarnings(*(f"ignore::{kind.__name__}" for kind in IGNORED))


@pytest.mark.parametrize("targets", [["g_proj"], ["in_proj", "out_proj", "o_proj", "w1"], "all-linear"], ids=str)
def test_logits_are_those_of_pefts_merged_model(tmp_path, targets):
    layers = ["conv", "full_attention", "sliding_attention"]
    model = write_checkpoint(tmp_path / "model", architecture="lfm3", num_hidden_layers=3, layer_types=layers)
    save_with_peft(model, tmp_path / "adapter", {"target_modules": targets})
    changed = assert_parity(model, tmp_path / "adapter") - our_logits(model, None)
    assert changed.abs().max() > 0.01


@pytest.mark.parametrize("targets", [["in_proj", "out_proj"], ["q_proj", "w2"], r".*\.conv\.in_proj|.*\.w3"], ids=str)
def test_modules_of_lfm2_have_the_names_of_its_checkpoints(tmp_path, targets):
    model = write_checkpoint(tmp_path / "model", architecture="lfm2")
    save_with_peft(model, tmp_path / "adapter", {"target_modules": targets})
    changed = assert_parity(model, tmp_path / "adapter") - our_logits(model, None)
    assert changed.abs().max() > 0.01


def test_an_adapter_for_another_model_is_told_a_name_of_the_checkpoints(tmp_path):
    model = write_checkpoint(tmp_path / "model", architecture="lfm2")
    path = write_adapter(tmp_path / "adapter", model, targets=["q_proj"])
    config = json.loads((path / "adapter_config.json").read_text())
    (path / "adapter_config.json").write_text(json.dumps(config | {"target_modules": ["c_attn"]}))
    told = (
        r"target_modules = \['c_attn'\] matches no linear layer of this model, such as model.layers.1.feed_forward.w2"
    )
    with pytest.raises(ConfigError, match=told):
        our_logits(model, path)
