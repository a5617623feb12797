"""What is wrong with the block of a Qwen3.5 checkpoint, or not served of it, is told by name."""

from __future__ import annotations

import re

import pytest
import torch
from changed_files import change_tensors
from eagle_engines import eagle_engine
from qwen35_blocks import change_config, raw_of, write_reading_target, write_target

from mtp_blocks import LAYER, random_block, shapes_of
from specserve.errors import ModelError
from specserve.models.families.lfm3 import Lfm3
from specserve.models.read_config import parse_config, read_config
from specserve_eagle.checkpoints import kind_of, open_head, read_head_config
from specserve_eagle.checkpoints.family import refuse_arithmetic
from specserve_workbench.testing.toy import DEFAULTS, write_checkpoint

NAMES = [name for name in shapes_of(DEFAULTS) if name != "mtp.fc.weight"]


def refused(path, match):
    with pytest.raises(ModelError, match=match):
        open_head(path, read_head_config(path, read_config(path)))


@pytest.mark.parametrize("name", NAMES)
def test_every_missing_tensor_is_named(tmp_path, name):
    refused(change_tensors(write_target(tmp_path), **{name: None}), f"tensor {re.escape(name)} is missing")


def test_queries_without_gates_are_of_a_wrong_shape(tmp_path):
    name = f"{LAYER}self_attn.q_proj.weight"
    refused(change_tensors(write_target(tmp_path), **{name: torch.ones(128, 128)}), r"q_proj.*shape \[128, 128\], but")


def test_a_tensor_of_the_block_that_is_not_read_is_named(tmp_path):
    name = f"{LAYER}self_attn.k_proj.bias"
    for path in (target := write_target(tmp_path / "text"), write_reading_target(tmp_path / "reading", target)):
        refused(change_tensors(path, **{name: torch.ones(64)}), f"tensor {re.escape(name)} is not part of the mtp head")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        (
            {"num_experts": 8},
            r"num_experts = 8 \(a mixture of experts\) is not supported in this draft head. Experts are",
        ),
        ({"mtp_num_hidden_layers": 2}, "an MTP head of 2 layers is not supported"),
        ({"mtp_use_dedicated_embeddings": True}, "mtp_use_dedicated_embeddings = True .embeddings of the MTP block's"),
    ],
)
def test_what_is_not_served_is_refused_by_name(tmp_path, changes, match):
    path = write_target(tmp_path)
    config = read_config(path)
    with pytest.raises(ModelError, match=match):
        read_head_config(change_config(path, **changes), config)


def test_experts_of_the_block_are_refused_by_name(tmp_path):
    name = f"{LAYER}mlp.experts.gate_up_proj"
    path = change_tensors(write_target(tmp_path), **{name: torch.ones(2, 2, 2)})
    refused(path, f"tensor {re.escape(name)} .a mixture of experts. is not supported in this draft head")


@pytest.mark.parametrize(("family", "match"), [
    ("olmo2", "a head of olmo2 layers is not supported: norms of all heads, output norms"),
    ("granite", "a head of granite layers is not supported: logits divisor, residual multiplier"),
])  # fmt: skip
def test_layers_of_families_with_other_arithmetic_are_refused(tmp_path, family, match):
    path = write_checkpoint(tmp_path, architecture=family)
    refused(change_tensors(path, **random_block(raw_of(path))), match)


def test_gates_of_whole_heads_are_refused():
    layer = parse_config(DEFAULTS | {"model_type": "lfm3"} | Lfm3.toy, {}, where="x")
    with pytest.raises(ModelError, match=r"a head of lfm3 layers is not supported: .*, attention gates of whole heads"):
        refuse_arithmetic({}, layer, "x")


def test_a_gate_of_attention_in_a_family_that_has_none_is_refused(tmp_path):
    path = write_checkpoint(tmp_path, architecture="qwen3")
    change_config(change_tensors(path, **random_block(raw_of(path))), attn_output_gate=True)
    refused(path, "attn_output_gate = true .gated attention outputs. is not supported for qwen3 layers")


def test_a_target_whose_block_was_left_out_says_so(tmp_path):
    path = write_checkpoint(tmp_path / "text", architecture="qwen3_5_text", mtp_num_hidden_layers=1)
    with pytest.raises(
        ModelError, match=r"target itself.* promises an MTP block \(mtp_num_hidden_layers = 1\), and no"
    ):
        eagle_engine(path, path)
    with pytest.raises(ModelError, match=r"promises an MTP block \(mtp_num_hidden_layers = 1\), and no tensor is of"):
        kind_of(write_reading_target(tmp_path / "reading", path))


def test_a_block_of_another_layout_is_named(tmp_path):
    path = change_tensors(write_checkpoint(tmp_path), **{"model.mtp.blocks.0.up.weight": torch.ones(2, 2)})
    with pytest.raises(
        ModelError, match=r"Tensor model\.mtp\.blocks\.0\.up\.weight is of an MTP block whose layout is"
    ):
        eagle_engine(path, path)
