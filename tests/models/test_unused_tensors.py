"""Tensors that nobody reads: what would change the model is refused by name, what stands beside it is reported."""

from __future__ import annotations

import logging

import pytest
import torch
from changed_files import change_json, change_tensors
from naive_forward import forward, load

from specserve.errors import ModelError
from specserve_workbench.testing.toy import write_checkpoint

LAYER = "model.layers.1."


@pytest.mark.parametrize(
    ("name", "tensor", "advice"),
    [
        ("self_attn.q_proj.bias", torch.ones(128), "attention_bias"),
        ("self_attn.o_proj.bias", torch.ones(128), "attention_bias"),
        ("mlp.down_proj.bias", torch.ones(128), "mlp_bias"),
        ("input_layernorm.bias", torch.ones(128), "remove the biases"),
        ("self_attn.q_norm.weight", torch.ones(32), "`architectures`"),
        ("post_feedforward_layernorm.weight", torch.ones(128), "`architectures`"),
        ("self_attn.sinks", torch.zeros(4), "`architectures`"),
        ("self_attn.q_proj.weight_scale", torch.ones(128, 1), "quantization_config"),
        ("self_attn.q_proj.lora_A.weight", torch.ones(4, 128), "--plugin lora"),
    ],
)
def test_what_stands_within_a_layer_is_refused(tmp_path, name, tensor, advice):
    path = change_tensors(write_checkpoint(tmp_path), **{LAYER + name: tensor})
    with pytest.raises(ModelError, match=f"tensor {LAYER}{name} would change what the model computes.*{advice}"):
        load(path)


@pytest.mark.parametrize("name", ["lm_head.bias", "model.norm.bias", "model.embed_tokens.weight_scale"])
def test_what_stands_beside_a_weight_is_refused(tmp_path, name):
    with pytest.raises(ModelError, match=f"tensor {name} would change"):
        load(change_tensors(write_checkpoint(tmp_path), **{name: torch.ones(320)}))


def test_many_are_counted_and_the_first_named(tmp_path):
    biases = {f"model.layers.{i}.self_attn.{name}_proj.bias": torch.ones(64) for i in range(2) for name in "kov"}
    with pytest.raises(ModelError, match=r"6 tensors \(model\.layers\.0\.self_attn\.k_proj\.bias, .* and 1 more\)"):
        load(change_tensors(write_checkpoint(tmp_path), **biases))


def test_biases_of_zeros_add_nothing_and_are_reported(tmp_path, caplog):
    path = write_checkpoint(tmp_path)
    before = forward(load(path), [1, 2, 3])
    change_tensors(path, **{f"{LAYER}self_attn.q_proj.bias": torch.zeros(128)})
    caplog.set_level(logging.WARNING, "specserve")
    assert torch.equal(forward(load(path), [1, 2, 3]), before)
    assert f"1 tensors are not used: {LAYER}self_attn.q_proj.bias" in caplog.text


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("mystery", "1 tensors are not used: mystery"),
        ("score.weight", "score.weight"),
        ("vision_tower.encoder.layers.0.mlp.fc1.bias", "vision_tower"),
        (f"{LAYER}self_attn.k_scale", "k_scale"),
        ("model.layers.2.mlp.up_proj.weight", "config.json has num_hidden_layers 2: what follows in the file"),
    ],
)
def test_what_stands_beside_the_model_is_reported_by_name(tmp_path, caplog, name, told):
    caplog.set_level(logging.WARNING, "specserve")
    load(change_tensors(write_checkpoint(tmp_path), **{name: torch.ones(2)}))
    assert told in caplog.text


@pytest.mark.parametrize(
    "names",
    [
        (f"{LAYER}self_attn.rotary_emb.inv_freq",),
        ("model.rotary_emb.inv_freq",),
        ("mtp.layers.0.mlp.up_proj.weight",),
        ("model.mtp_layers.0.input_proj.weight",),
        ("model.layers.2.eh_proj.weight", "model.layers.2.mlp.up_proj.weight"),
    ],
)
def test_buffers_of_old_exporters_and_blocks_that_draft_pass_in_silence(tmp_path, caplog, names):
    caplog.set_level(logging.WARNING, "specserve")
    load(change_tensors(write_checkpoint(tmp_path), **{name: torch.ones(16) for name in names}))
    assert caplog.text == ""


def test_a_served_layer_is_no_block_that_drafts(tmp_path):
    path = change_tensors(write_checkpoint(tmp_path), **{f"{LAYER}eh_proj.weight": torch.ones(2)})
    with pytest.raises(ModelError, match=r"eh_proj\.weight would change what the model computes"):
        load(path)


def test_a_single_file_is_read_before_shards_and_this_is_said(tmp_path, caplog):
    path = write_checkpoint(tmp_path, shards=2)
    write_checkpoint(tmp_path, seed=1)
    one = write_checkpoint(tmp_path / "one", seed=1)
    caplog.set_level(logging.WARNING, "specserve")
    assert torch.equal(forward(load(path), [1, 2]), forward(load(one), [1, 2]))
    assert "model.safetensors and model.safetensors.index.json: the first is read" in caplog.text


def test_a_model_of_fewer_layers_than_its_file_is_served(tmp_path):
    path = write_checkpoint(tmp_path)
    change_json(path / "config.json", num_hidden_layers=1)
    assert load(path).num_layers == 1
