"""Drafters of public models that are not served are refused for what they are, with what to draft with."""

from __future__ import annotations

import pytest
import torch
from changed_files import change_json, change_tensors

from specserve.config import EngineConfig
from specserve.errors import ConfigError, ModelError
from specserve.models.served_model import ServedModel
from specserve_eagle.checkpoints import kind_of
from specserve_eagle.load import drafter_at
from specserve_eagle.options import EagleOptions
from specserve_workbench.testing.toy import write_checkpoint


@pytest.mark.parametrize("changes", [
    {"architectures": ["Gemma4UnifiedAssistantForCausalLM"]},
    {"architectures": [], "model_type": "gemma4_unified_assistant"},
], ids=str)  # fmt: skip
def test_an_assistant_for_another_model_is_refused_by_name(tmp_path, changes):
    path = write_checkpoint(tmp_path)
    change_json(path / "config.json", **changes)
    with pytest.raises(
        ModelError, match=r"is an assistant \((Gemma4UnifiedA|gemma4_unified_a)ssistant.* not served.*Gemma 4.*n-gram"
    ):
        kind_of(path)


def test_a_block_with_latent_attention_of_another_architecture_is_refused_by_name(tmp_path):
    path = write_checkpoint(tmp_path, num_hidden_layers=2)
    change_json(path / "config.json", architectures=["OtherForCausalLM"], kv_lora_rank=16)
    change_tensors(path, **{"model.layers.2.eh_proj.weight": torch.ones(2, 2)})
    config, target = EngineConfig(model=str(path)), ServedModel()
    target.family, target.num_layers, target.hidden_size, target.vocab_size = "OtherForCausalLM", 2, 64, 320
    with pytest.raises(ModelError, match=r"kv_lora_rank = 16 .multi-head latent attention. is not .* n-gram, .* model"):
        drafter_at(path, config, EagleOptions(model=str(path)), target)


def test_an_assistant_of_a_target_that_a_library_serves_is_refused_by_name(tmp_path):
    path = write_checkpoint(tmp_path)
    change_json(path / "config.json", architectures=["Gemma4AssistantForCausalLM"])
    with pytest.raises(ConfigError, match=r"is an assistant, .* a library that keeps them .* n-gram drafts"):
        drafter_at(path, EngineConfig(model=str(path)), EagleOptions(model=str(path)), ServedModel())


def test_a_block_whose_names_are_not_known_is_refused_by_name(tmp_path):
    path = write_checkpoint(tmp_path)
    change_json(path / "config.json", architectures=["OtherForCausalLM"])
    change_tensors(path, **{"model.mtp_part.0.mlp.up_proj.weight": torch.ones(2, 2)})
    with pytest.raises(ModelError, match=r"Tensor model\.mtp_part\.0\.mlp\.up_proj\.weight is of an MTP block whose"):
        kind_of(path)
