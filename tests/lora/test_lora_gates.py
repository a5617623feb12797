"""Adapters of a model with gates and convolutions are PEFT's."""

from __future__ import annotations

import pytest
from test_lora_parity import assert_parity, our_logits, save_with_peft

from specserve_workbench.testing.toy import write_checkpoint

IGNORED = (DeprecationWarning, FutureWarning, RuntimeWarning, UserWarning)
pytestmark = pytest.mark.filterwarnings(*(f"ignore::{kind.__name__}" for kind in IGNORED))


@pytest.mark.parametrize("targets", [["g_proj"], ["in_proj", "out_proj", "o_proj", "w1"], "all-linear"], ids=str)
def test_logits_are_those_of_pefts_merged_model(tmp_path, targets):
    layers = ["conv", "full_attention", "sliding_attention"]
    model = write_checkpoint(tmp_path / "model", architecture="lfm3", num_hidden_layers=3, layer_types=layers)
    save_with_peft(model, tmp_path / "adapter", {"target_modules": targets})
    changed = assert_parity(model, tmp_path / "adapter") - our_logits(model, None)
    assert changed.abs().max() > 0.01
