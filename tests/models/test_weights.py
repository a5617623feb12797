"""Checkpoints: what is read, and what is refused with the name of the file and the tensor."""

from __future__ import annotations

import json

import pytest
import torch
from changed_files import change_json, change_tensors
from naive_forward import forward, load
from safetensors.torch import load_file

from specserve.errors import ModelError
from specserve.models.checkpoint import Checkpoint, View
from specserve.models.open_weights import open_weights
from specserve.models.safetensors_header import INDEX, SINGLE
from specserve_workbench.testing.toy import write_checkpoint

PROMPT = list(range(20))
Q_PROJ = "model.layers.1.self_attn.q_proj.weight"


def test_shards_hold_the_same_model_as_one_file(tmp_path):
    one, many = write_checkpoint(tmp_path / "one"), write_checkpoint(tmp_path / "many", shards=3)
    assert not (many / SINGLE).exists()
    assert torch.equal(forward(load(one), PROMPT), forward(load(many), PROMPT))


def test_fused_weights_are_the_checkpoints_in_the_order_of_parts(tmp_path):
    path = write_checkpoint(tmp_path, architecture="qwen2")
    tensors, projection = load_file(path / SINGLE), load(path).projections["layers.1.qkv_proj"]
    assert list(projection.parts) == ["q_proj", "k_proj", "v_proj"]
    for part, rows in projection.parts.items():
        assert torch.equal(projection.weight[rows], tensors[f"model.layers.1.self_attn.{part}.weight"])
        assert torch.equal(projection.bias[rows], tensors[f"model.layers.1.self_attn.{part}.bias"])


def test_every_projection_has_a_name(tmp_path):
    kinds = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")
    names = {f"layers.{layer}.{kind}" for layer in range(2) for kind in kinds} | {"lm_head"}
    assert set(load(write_checkpoint(tmp_path)).projections) == names


def test_a_tied_head_is_the_embedding_itself(tmp_path):
    model = load(write_checkpoint(tmp_path, tie_word_embeddings=True))
    assert model.projections["lm_head"].weight is model.embedding


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_dtype_is_the_checkpoints_unless_another_is_asked_for(tmp_path, dtype):
    path = write_checkpoint(tmp_path, dtype="bfloat16")
    assert load(path).dtype == torch.bfloat16
    model = load(path, dtype=dtype)
    assert {p.weight.dtype for p in model.projections.values()} == {model.dtype} == {getattr(torch, dtype)}


@pytest.mark.parametrize("shards", [1, 2])
def test_progress_rises_to_the_total_of_bytes(tmp_path, shards):
    seen = []
    path = write_checkpoint(tmp_path, shards=shards)
    load(path, on_progress=lambda done, total: seen.append((done, total)))
    size = sum(t.nbytes for file in path.glob("*.safetensors") for t in load_file(file).values())
    assert seen == sorted(set(seen))
    assert seen[-1] == (size, size)
    assert {total for _, total in seen} == {size}


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt"])
def test_pickled_weights_are_refused_unread(tmp_path, name):
    path = write_checkpoint(tmp_path)
    (path / SINGLE).rename(path / name)
    with pytest.raises(ModelError, match=f"pickled weights.*{name}.*Convert"):
        load(path)


def test_a_directory_without_weights_is_named(tmp_path):
    path = write_checkpoint(tmp_path)
    (path / SINGLE).unlink()
    with pytest.raises(ModelError, match="has no weights"):
        load(path)


@pytest.mark.parametrize("size", [0, 5, 2000, 100_000])
def test_a_truncated_file_is_named(tmp_path, size):
    path = write_checkpoint(tmp_path)
    (path / SINGLE).write_bytes((path / SINGLE).read_bytes()[:size])
    with pytest.raises(ModelError, match=r"model\.safetensors is truncated"):
        load(path)


def test_a_missing_tensor_is_named(tmp_path):
    path = write_checkpoint(tmp_path)
    change_tensors(path, **{Q_PROJ: None})
    with pytest.raises(ModelError, match=f"tensor {Q_PROJ} is missing"):
        load(path)


def test_a_wrong_shape_is_named_with_both_shapes(tmp_path):
    path = write_checkpoint(tmp_path)
    change_tensors(path, **{Q_PROJ: torch.zeros(3, 5)})
    with pytest.raises(ModelError, match=rf"tensor {Q_PROJ} has shape \[3, 5\], but config.json says \[128, 128\]"):
        load(path)


def test_shapes_are_checked_before_anything_is_allocated(tmp_path):
    path = write_checkpoint(tmp_path)
    change_json(path / "config.json", vocab_size=10**14)
    with pytest.raises(ModelError, match=r"embed_tokens.weight has shape \[320, 128\]"):
        load(path)


def test_integer_weights_are_refused(tmp_path):
    path = write_checkpoint(tmp_path)
    change_tensors(path, **{Q_PROJ: torch.zeros(128, 128, dtype=torch.int8)})
    with pytest.raises(ModelError, match=f"tensor {Q_PROJ} has type I8; allowed: F64, F32, BF16, F16"):
        load(path)


def test_a_missing_shard_is_named(tmp_path):
    path = write_checkpoint(tmp_path, shards=3)
    (path / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(ModelError, match=r"shard model-00002-of-00003\.safetensors is missing"):
        load(path)


def test_an_index_that_promises_too_much_is_named(tmp_path):
    path = write_checkpoint(tmp_path, shards=2)
    weight_map = json.loads((path / INDEX).read_text())["weight_map"]
    weight_map["mystery"] = "model-00001-of-00002.safetensors"
    change_json(path / INDEX, weight_map=weight_map)
    with pytest.raises(ModelError, match=r"model-00001-of-00002.safetensors lacks tensor mystery, which .* puts there"):
        load(path)


@pytest.mark.parametrize("weight_map", [None, {}, {"x": "../secret.safetensors"}, {"x": "a.bin"}, {"x": 3}])
def test_an_index_that_is_empty_or_points_elsewhere_is_refused(tmp_path, weight_map):
    path = write_checkpoint(tmp_path, shards=2)
    change_json(path / INDEX, weight_map=weight_map)
    with pytest.raises(ModelError, match=r"model\.safetensors\.index\.json"):
        load(path)


def test_more_context_than_the_model_has_is_refused(tmp_path):
    path = write_checkpoint(tmp_path)
    assert load(path).max_model_len == 2048
    assert load(path, max_model_len=100).max_model_len == 100
    with pytest.raises(ModelError, match=r"max_model_len must be between 1 and 2048.*got 4096"):
        load(path, max_model_len=4096)


def test_some_rows_of_a_part_are_those_of_the_whole(tmp_path):
    path = write_checkpoint(tmp_path)
    whole = load_file(path / SINGLE)[Q_PROJ]
    checkpoint = Checkpoint(open_weights(path))
    checkpoint.split({"head": View(Q_PROJ, slice(0, 40)), "tail": View(Q_PROJ, slice(40, None))})
    assert checkpoint.find("tail").shape == (len(whole) - 40, whole.shape[1])
    assert torch.equal(checkpoint.rows("tail", slice(5, 9)), whole[45:49])
    assert torch.equal(checkpoint.rows("head", slice(30, None)), whole[30:40])
    assert torch.equal(checkpoint.take("tail"), whole[40:])
    with pytest.raises(ModelError, match=f"tensor {Q_PROJ} is missing"):
        checkpoint.find(Q_PROJ)
