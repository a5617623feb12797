"""Tensors of a file: rows, stacks and orders of rows of weights that stay quantised; what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from conversion import convert, neighbours

import gguf
from specserve.api import ModelError
from specserve.models.checkpoint import Checkpoint
from specserve.models.locate import locate_model
from specserve.models.quantised import dense
from specserve.protocols.part import TensorPart
from specserve_gguf.model_file import open_files
from specserve_gguf.source import Gguf
from specserve_workbench.testing.toy import write_checkpoint

Q = "model.layers.0.self_attn.q_proj.weight"
SIZES = {"hidden_size": 128, "intermediate_size": 320}


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def opened(tmp_path, kind, family="llama", **config):
    original = write_checkpoint(tmp_path / "model", architecture=family, **SIZES | config)
    file = convert(original, tmp_path / "model.gguf", kind)
    return original, file, Checkpoint(Gguf().open(locate_model(str(file))))


def read_back(file, name):
    """A tensor as the package gguf reads it."""
    found = next(tensor for tensor in gguf.GGUFReader(file).tensors if tensor.name == name)
    return torch.from_numpy(np.array(gguf.quants.dequantize(found.data, found.tensor_type)))


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "F16"])
def test_rows_of_queries_are_in_the_models_order_and_keep_their_bits(tmp_path, kind):
    _, file, checkpoint = opened(tmp_path, kind)
    assert checkpoint.find(Q).quantised == (kind != "F16")
    got = dense(checkpoint.take(Q)).float()
    assert torch.equal(torch.from_numpy(neighbours(got.numpy(), 4)), read_back(file, "blk.0.attn_q.weight").float())


@pytest.mark.parametrize("name", [Q, "model.layers.1.mlp.up_proj.weight", "model.embed_tokens.weight"])
def test_some_rows_and_columns_are_those_of_the_whole(tmp_path, name):
    _, _, checkpoint = opened(tmp_path, "Q4_1")
    whole = dense(checkpoint.take(name))
    part = TensorPart(rows=slice(32, 96), columns=slice(64, 128))
    assert torch.equal(dense(checkpoint.take(name, part)), whole[32:96, 64:128])
    for rows in (slice(5, 6), slice(30, 34), slice(31, None, 3), slice(96, 128)):
        assert torch.equal(dense(checkpoint.rows(name, rows)), whole[rows])


@pytest.mark.parametrize(("name", "rows", "read_rows"), [
    (Q, slice(70, 90), 32),  # a head, in which rows have another order
    (Q, slice(60, 65), 64),
    ("model.layers.1.mlp.up_proj.weight", slice(3, 5), 2),
    ("model.layers.0.mlp.experts.5.up_proj.weight", slice(10, 20), 10),
])  # fmt: skip
def test_no_other_rows_are_read_than_those_asked_for(tmp_path, monkeypatch, name, rows, read_rows):
    experts = "experts" in name
    config = {"family": "qwen3_moe", "moe_intermediate_size": 64} if experts else {}
    _, _, checkpoint = opened(tmp_path, "Q8_0", **config)
    read, fromfile = [], np.fromfile
    monkeypatch.setattr(np, "fromfile", lambda *given, **at: read.append(given[2]) or fromfile(*given, **at))
    checkpoint.rows(name, rows)
    row = checkpoint.find(name).num_bytes // checkpoint.find(name).shape[0]
    assert read == [read_rows * row]


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_each_expert_is_a_matrix_of_the_stack(tmp_path, kind):
    _, file, checkpoint = opened(tmp_path, kind, "qwen3_moe", moe_intermediate_size=64)
    stack = read_back(file, "blk.1.ffn_up_exps.weight")
    for expert in (0, 5):
        got = checkpoint.take(f"model.layers.1.mlp.experts.{expert}.up_proj.weight")
        assert torch.equal(dense(got), stack[expert])
    rows = checkpoint.rows("model.layers.1.mlp.experts.5.up_proj.weight", slice(10, 20))
    assert torch.equal(dense(rows), stack[5, 10:20])


def test_progress_counts_the_bytes_of_the_file(tmp_path):
    _, file, _ = opened(tmp_path, "Q4_0")
    told = []
    checkpoint = Checkpoint(Gguf().open(locate_model(str(file))), lambda *seen: told.append(seen))
    for name in sorted(checkpoint.names):
        checkpoint.take(name)
    assert told[-1] == (sum(tensor.info.num_bytes for tensor in open_files([file]).tensors.values()),) * 2


def test_a_type_that_is_not_read_is_refused_by_name(tmp_path):
    original = write_checkpoint(tmp_path / "model", hidden_size=256)
    file = convert(original, tmp_path / "model.gguf")
    content = bytearray(file.read_bytes())
    name = b"blk.0.ffn_up.weight"
    at = content.index(name) + len(name) + 4 + 16
    content[at : at + 4] = (16).to_bytes(4, "little")
    file.write_bytes(content)
    with pytest.raises(ModelError, match=r"blk\.0\.ffn_up\.weight has type IQ2_XXS, which is not read; .* as Q4_K_M"):
        Gguf().open(locate_model(str(file)))


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path):
    _, file, checkpoint = opened(tmp_path, "F32")
    whole_file = file.rename(tmp_path / "whole.gguf")
    file.write_bytes(whole_file.read_bytes()[: whole_file.stat().st_size // 2])
    last = max(open_files([whole_file]).tensors.values(), key=lambda tensor: tensor.info.begin).info.name
    with pytest.raises(ModelError, match=rf"ends before tensor {last} does"):
        [checkpoint.take(name) for name, part in checkpoint.source.parts.items() if part.tensor == last]


def test_shards_are_one_model(tmp_path):
    _, file, checkpoint = opened(tmp_path, "F32")
    shards = split(file, tmp_path / "shards")
    made = locate_model(str(shards[1]))
    assert sorted(each.name for each in made.glob("*.gguf")) == [each.name for each in shards]
    got = Checkpoint(Gguf().open(made))
    assert got.names == checkpoint.names
    assert torch.equal(dense(got.take(Q)), dense(checkpoint.take(Q)))
    assert json.loads((made / "config.json").read_text())["hidden_size"] == 128
    shards[0].unlink()
    with pytest.raises(ModelError, match="is one of 2 files of a model, and 1 are missing, such as m-00001-of-00002"):
        locate_model(str(shards[1]))


def split(file, folder):
    """As llama.cpp splits files: all keys in the first one."""
    folder.mkdir()
    reader = gguf.GGUFReader(file)
    made = []
    for number in range(2):
        made.append(folder / f"m-{number + 1:05}-of-00002.gguf")
        writer = gguf.GGUFWriter(made[-1], "llama")
        for field in reader.fields.values() if number == 0 else ():
            if not field.name.startswith("GGUF.") and field.name != "general.architecture":
                kinds = field.types
                writer.add_key_value(field.name, field.contents(), kinds[0], kinds[1] if len(kinds) > 1 else None)
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", 2)
        for tensor in reader.tensors[number::2]:
            writer.add_tensor(tensor.name, np.array(tensor.data))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return made
