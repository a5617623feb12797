"""LFM2's files: which layers have a convolution, its numbers, and how experts are chosen."""

from __future__ import annotations

import pytest
import torch
from conversion import convert

import gguf
from specserve.api import ModelError
from specserve.models.checkpoint import Checkpoint
from specserve.models.locate import locate_model
from specserve.models.read_config import read_config
from specserve_gguf.source import Gguf
from specserve_workbench.testing.toy import write_checkpoint


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def directory(tmp_path, family="lfm2", kind="F32", **extra):
    sizes = {"moe_intermediate_size": 64, "tie_word_embeddings": True} if family == "lfm2_moe" else {}
    original = write_checkpoint(tmp_path / "model", architecture=family, **sizes)
    return locate_model(str(convert(original, tmp_path / "model.gguf", kind, extra=extra)))


def test_layers_without_key_heads_have_a_convolution(tmp_path):
    assert [mixer is None for mixer in read_config(directory(tmp_path)).mixers] == [False, True]
    one_number = read_config(directory(tmp_path / "other", **{"attention.head_count_kv": 2}))
    assert [mixer is None for mixer in one_number.mixers] == [True, True]


@pytest.mark.parametrize(
    ("family", "key", "value", "message"),
    [
        ("lfm2", "attention.head_count_kv", [0, 0], "the same number in all layers that have key heads; got"),
        ("lfm2", "attention.head_count_kv", [2, 4], "the same number in all layers that have key heads; got"),
        ("lfm2", "attention.head_count_kv", [0, 2, 2], "a whole number, or one for each of 2 layers; got"),
        ("lfm2", "attention.head_count_kv", [-1, 2], "a whole number, or one for each of 2 layers; got"),
        ("lfm2", "attention.head_count_kv", 0, "a whole number, or one for each of 2 layers; got 0"),
        ("lfm2", "attention.sliding_window", 128, "sliding_window must be null for lfm2; got 128"),
        ("lfm2_moe", "expert_gating_func", 1, "expert_gating_func must be 2, by sigmoids; got 1"),
        ("lfm2_moe", "leading_dense_block_count", 513, "must be a whole number, at most 512; got 513"),
    ],
)
def test_what_a_file_cannot_say_is_refused_by_name(tmp_path, family, key, value, message):
    with pytest.raises(ModelError, match=message):
        read_config(directory(tmp_path, family, **{key: value}))


def test_weights_of_experts_are_multiplied_as_the_file_says(tmp_path):
    experts = read_config(directory(tmp_path, "lfm2_moe", expert_weights_scale=2.5, expert_weights_norm=False)).experts
    assert (experts.weight_scale, experts.renormalised, experts.choice_bias) == (2.5, False, True)


@pytest.mark.parametrize("family", ["lfm2", "lfm2_moe"])
def test_quantised_files_keep_convolutions_and_the_choice_of_experts_as_they_are(tmp_path, family):
    made = directory(tmp_path, family, "Q8_0")
    checkpoint = Checkpoint(Gguf().open(made))
    kernel = checkpoint.take("model.layers.0.conv.conv.weight")
    original = dict(numbers_of(tmp_path / "model.gguf"))
    assert kernel.shape == (128, 1, 3)
    assert torch.equal(kernel.squeeze(1), original["blk.0.shortconv.conv.weight"])
    assert checkpoint.find("model.layers.0.conv.in_proj.weight").quantised
    if family == "lfm2_moe":
        assert torch.equal(checkpoint.take("model.layers.1.mlp.choice.bias"), original["blk.1.exp_probs_b.bias"])
        assert checkpoint.find("model.layers.1.mlp.experts.5.down_proj.weight").quantised


def numbers_of(file):
    """Of the tensors in 32 bits, as the package gguf reads them."""
    for tensor in gguf.GGUFReader(file).tensors:
        if tensor.tensor_type == gguf.GGMLQuantizationType.F32:
            yield tensor.name, torch.from_numpy(tensor.data.copy())
