"""What is wrong with a block head is told by name before anything is served, and the layouts' keys are read."""

from __future__ import annotations

import pytest
import torch
from eagle_engines import Recorder, eagle_engine, write_target
from safetensors.torch import save_file
from toy_block_heads import BLOCK, DFLASH, FORMS, H, random_block_head, write_block_head
from toy_heads import HEAD_DIM, HEADS, change_tensors, toy_target

from specserve.errors import ModelError
from specserve_eagle.block.config import read_block_config
from specserve_eagle.block.tensors import open_block_head
from specserve_eagle.checkpoints import kind_of
from specserve_workbench.testing.engines import run_requests
from specserve_workbench.testing.requests import toy_request


def opened(path, **target):
    config = read_block_config(path, toy_target(num_hidden_layers=2, **target))
    return config, open_block_head(path, config)


def without(key):
    return {"dflash_config": {name: value for name, value in DFLASH["dflash_config"].items() if name != key}}


@pytest.mark.parametrize("form", FORMS)
def test_a_head_is_known_by_its_config_and_by_its_tensors(tmp_path, form):
    assert kind_of(write_block_head(tmp_path / "named", form)) == "block"
    unnamed = {"architectures": ["Model"], "speculators_model_type": None}
    assert kind_of(write_block_head(tmp_path / "unnamed", form, **unnamed)) == "block"


@pytest.mark.parametrize(
    ("form", "changes", "match"),
    [
        ("dflash", {"block_size": 1}, "block_size must be a whole number from 2 to 64; got 1"),
        ("dflash", {"block_size": None}, "block_size must be a whole number"),
        ("dflash", without("mask_token_id"), "mask_token_id must be a whole number from 0 to 63; got None"),
        ("dspark", {"mask_token_id": 64}, "mask_token_id must be a whole number from 0 to 63; got 64"),
        ("dspark", {"target_layer_ids": [0, 2]}, r"target_layer_ids = \[0, 2\], but this target has 2 layers"),
        ("dspark", {"target_layer_ids": ["one"]}, "must be a list of layer numbers"),
        ("dspark", {"markov_head_type": "gru"}, "markov_head_type must be one of vanilla, gated, rnn; got 'gru'"),
        ("dspark", {"markov_head_type": "gated"}, "markov_head.gate_proj.weight"),
        ("gated", {"markov_head_type": "vanilla"}, "markov_head.gate_proj.* is not part of the block head"),
        ("dspark", {"markov_rank": -1}, "markov_rank must be a whole number from 1 to 4096"),
        ("dflash", {"use_swa": True}, "neither swa_window_size nor sliding_window says how many tokens"),
        ("dflash", {"use_swa": True, "swa_window_size": 0.5}, "sliding_window must be a positive number of tokens"),
        ("dflash", {"layer_types": ["sliding_attention"]}, "layer_types must name one of full_attention"),
        ("dflash", {"layer_types": ["full_attention", "chunked"]}, "layer_types must name one of"),
        (
            "dflash",
            {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 9},
            "without causal .* is not supported in a block head",
        ),
        ("dflash", {"output_multiplier": 2.0}, "a multiplier of the head's output"),
        (
            "dflash",
            {"selector_rank": 32},
            r"selector_rank = 32 \(DFlash2's candidate selector\) .* Use a DFlash or DSpark",
        ),
        ("dflash", {"dflash_config": DFLASH["dflash_config"] | {"conv_group_size": 8}}, "DFlash2's convolutions"),
        ("dflash", {"vocab_size": 96}, "vocabulary of the head: 96 tokens; of the target: 64"),
        ("dflash", {"hidden_size": H + 8}, r"fc.weight has shape \[32, 64\], but config.json says \[40, 64\]"),
        ("speculators", {"transformer_layer_config": []}, "transformer_layer_config must be an object"),
    ],
)
def test_a_config_that_cannot_be_is_refused(tmp_path, form, changes, match):
    with pytest.raises(ModelError, match=match):
        opened(write_block_head(tmp_path, form, **changes))


def test_a_factor_of_one_changes_nothing_and_is_read(tmp_path):
    opened(write_block_head(tmp_path, "dflash", output_multiplier=1.0, attention_value_scale=1, use_swa=False))


@pytest.mark.parametrize(
    ("form", "name", "match"),
    [
        ("dflash", "fc__weight", "fc.weight"),
        ("dflash", "layers__1__self_attn__k_norm__weight", "layers.1.self_attn.k_norm.weight"),
        ("dspark", "markov_head__markov_w2__weight", "markov_head.markov_w2.weight"),
        ("dspark", "confidence_head__proj__weight", "confidence_head.proj.weight"),
        ("speculators", "d2t", "d2t"),
    ],
)
def test_a_missing_tensor_is_named(tmp_path, form, name, match):
    path = change_tensors(write_block_head(tmp_path, form), **{name: None})
    with pytest.raises(ModelError, match=match):
        opened(path)


def test_a_tensor_that_config_json_does_not_describe_is_refused(tmp_path):
    path = write_block_head(tmp_path, "dspark", enable_confidence_head=False)
    with pytest.raises(ModelError, match=r"confidence_head.proj.* is not part of the block head"):
        opened(path)


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("candidate_selector.successor_codebook", "DFlash2's candidate selector"),
        ("layers.1.attention_conv.base", "DFlash2's convolutions"),
        ("model.layers.0.mlp_conv.base", "DFlash2's convolutions"),
    ],
)
def test_parts_of_dflash2_are_refused_by_name_whatever_config_json_says(tmp_path, name, meaning):
    path = write_block_head(tmp_path, "dflash", random_block_head("dflash") | {name: torch.zeros(2, 2)})
    with pytest.raises(ModelError, match=rf"tensor {name} \({meaning}\) is not supported .* n-gram drafts"):
        opened(path)


def test_a_head_of_another_targets_width_is_refused(tmp_path):
    path = write_block_head(tmp_path, "dflash")
    with pytest.raises(ModelError, match=r"fc.weight has shape \[32, 64\], but config.json says \[32, 128\]"):
        opened(path, hidden_size=64)


@pytest.mark.parametrize(
    ("changes", "layers"),
    [
        ({}, (1, 2)),
        ({"dflash_config": {"mask_token_id": 3, "target_layer_ids": [1, 0]}}, (2, 1)),
        ({"dflash_config": {"mask_token_id": 3}, "aux_hidden_state_layer_ids": [0, 2]}, (0, 2)),
    ],
)
def test_both_numberings_of_the_targets_layers_are_read(tmp_path, changes, layers):
    assert opened(write_block_head(tmp_path, "dflash", **changes))[0].hidden_layers == layers


def test_without_layer_numbers_they_lie_evenly(tmp_path):
    path = write_block_head(tmp_path, "dflash", **without("target_layer_ids"), num_hidden_layers=5)
    config = read_block_config(path, toy_target(num_hidden_layers=36))
    assert config.hidden_layers == (2, 10, 18, 26, 34)


def drafts_of(target, head):
    recorder = Recorder()
    engine = eagle_engine(target, head, steps=16, planner=recorder)
    run_requests(engine, [toy_request("r", range(1, 9), max_tokens=10, ignore_eos=True)])
    return recorder.drafts


def test_pairs_that_are_rotated_as_neighbours_give_the_same_drafts(tmp_path):
    target, head = write_target(tmp_path / "target"), random_block_head("dflash")
    expected = drafts_of(target, write_block_head(tmp_path / "halves", "dflash", head))
    order = torch.arange(HEAD_DIM).view(2, -1).T.flatten()  # i and i + d/2 become 2i and 2i + 1
    for name, tensor in head.items():
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            head[name] = tensor.view(-1, HEAD_DIM, H)[:, order].reshape(tensor.shape)
        elif name.endswith(("q_norm.weight", "k_norm.weight")):
            head[name] = tensor[order]
    neighbours = write_block_head(tmp_path / "neighbours", "dflash", head, is_neox_style=False)
    assert drafts_of(target, neighbours) == expected
    assert drafts_of(target, write_block_head(tmp_path / "wrong", "dflash", head)) != expected
    assert HEADS * HEAD_DIM == H


@pytest.mark.parametrize("steps", [1, 2, 16, "auto"])
def test_steps_bound_a_draft(tmp_path, steps):
    target, head = write_target(tmp_path / "target"), write_block_head(tmp_path / "head", "dspark")
    recorder = Recorder()
    engine = eagle_engine(target, head, steps=steps, planner=recorder)
    run_requests(engine, [toy_request("r", range(1, 9), max_tokens=20, ignore_eos=True)])
    assert max(map(len, recorder.drafts.values())) == (BLOCK if steps == "auto" else min(steps, BLOCK))


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_a_confidence_head_that_is_not_finite_is_refused(tmp_path, name):
    head = random_block_head("dspark")
    head[f"confidence_head.proj.{name}"].fill_(float("nan"))
    target = write_target(tmp_path / "target")
    with pytest.raises(ModelError, match=r"the confidence head has numbers in .* that are not finite"):
        eagle_engine(target, write_block_head(tmp_path / "head", "dspark", head))


def test_other_names_of_the_same_tensors_are_read(tmp_path):
    head = random_block_head("dflash")
    tensors = {f"model.{name}" if name.startswith("layers") else name: tensor for name, tensor in head.items()}
    tensors |= {"encoder.fc.weight": tensors.pop("fc.weight")}
    tensors |= {"encoder.output_norm_enc.weight": tensors.pop("hidden_norm.weight")}
    path = write_block_head(tmp_path, "dflash")
    save_file(tensors, path / "model.safetensors")
    assert torch.equal(opened(path)[1].take("fc"), head["fc.weight"])
