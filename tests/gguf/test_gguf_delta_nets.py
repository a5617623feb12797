"""Gated delta nets in files: value heads, whose rows and columns files have in another order, and keys that say how
many there are."""

from __future__ import annotations

import json

import conversion
import numpy as np
import pytest
import qwen35_conversion
import torch
from qwen35_conversion import NAMES, in_turns
from random_files import with_random_blocks

import gguf
from specserve.api import ModelError
from specserve.models.checkpoint import Checkpoint
from specserve.models.locate import locate_model
from specserve.models.quantised import dense
from specserve.models.read_config import read_config
from specserve_gguf.model_file import open_files
from specserve_gguf.source import Gguf
from specserve_workbench.testing.engines import accepted, run
from specserve_workbench.testing.requests import toy_request
from specserve_workbench.testing.toy import write_checkpoint

NET = "model.layers.0."
OF_HEADS = ("in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "out_proj")
WIDE = {"hidden_size": 256, "intermediate_size": 512, "linear_value_head_dim": 128}
NARROW = WIDE | {"linear_num_value_heads": 8, "linear_value_head_dim": 96}
"""Heads that begin and end within a block of 256 numbers."""
KINDS = {
    **dict.fromkeys(("F32", "F16", "Q8_0", "Q4_1", "Q4_K", "Q6_K", "IQ4_XS"), WIDE),
    **{f"{kind}-narrow": NARROW for kind in ("Q8_0", "Q4_K", "Q6_K")},
}
FAMILY = {"qwen35": "qwen3_5_text", "qwen35moe": "qwen3_5_moe_text"}


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def written(tmp_path, kind="F32", architecture="qwen35", extra=None, **config):
    original = write_checkpoint(tmp_path / "model", architecture=FAMILY[architecture], **config)
    return original, conversion.convert(original, tmp_path / "model.gguf", kind, extra=extra)


@pytest.fixture
def quantised(tmp_path, monkeypatch):
    """Which files these kinds of blocks are in."""

    def make(case):
        kind = case.partition("-")[0]
        if kind in ("Q4_K", "Q6_K", "IQ4_XS"):
            with_random_blocks(monkeypatch, kind)
        return written(tmp_path, kind, **KINDS[case])

    return make


def opened(file):
    return Checkpoint(Gguf().open(locate_model(str(file))))


def read_back(file, name):
    """A tensor as the package gguf reads it."""
    found = next(tensor for tensor in gguf.GGUFReader(file).tensors if tensor.name == name)
    return torch.from_numpy(np.array(gguf.quants.dequantize(found.data, found.tensor_type))).float()


@pytest.mark.parametrize("case", KINDS)
def test_value_heads_are_in_the_models_order_and_keep_their_bits(quantised, case):
    original, file = quantised(case)
    raw, checkpoint = json.loads((original / "config.json").read_text()), opened(file)
    for name in OF_HEADS:
        inner = f"linear_attn.{name}.weight"
        got = dense(checkpoint.take(NET + inner)).float()
        stored = read_back(file, f"blk.0.{NAMES[inner]}")
        assert torch.equal(torch.from_numpy(in_turns(f"{name}.weight", got.numpy(), raw)), stored), name
        assert not torch.equal(got, stored), name
        assert checkpoint.find(NET + inner).quantised == (case not in ("F32", "F16"))


@pytest.mark.parametrize("case", ["Q4_K", "Q4_K-narrow", "Q8_0"])
def test_some_rows_of_value_heads_are_those_of_the_whole_and_no_others_are_read(quantised, monkeypatch, case):
    checkpoint = opened(quantised(case)[1])
    read, fromfile = [], np.fromfile
    monkeypatch.setattr(np, "fromfile", lambda *given, **at: read.append(given[2]) or fromfile(*given, **at))
    for name in (f"{NET}linear_attn.{each}.weight" for each in ("in_proj_qkv", "in_proj_z", "in_proj_a", "out_proj")):
        whole, row = dense(checkpoint.take(name)), checkpoint.find(name).num_bytes // checkpoint.find(name).shape[0]
        for rows in (slice(0, 64), slice(3, 4), slice(1, 190), slice(2, None)):
            read.clear()
            got = dense(checkpoint.rows(name, rows))
            assert torch.equal(got, whole[rows]), (name, rows)
            assert sum(read) == len(whole[rows]) * row


def test_heads_that_share_a_scale_are_refused_by_name(tmp_path):
    _, file = written(tmp_path, "Q8_0", linear_num_value_heads=4, linear_value_head_dim=8)
    with pytest.raises(ModelError) as caught:
        opened(file)
    assert "tensor blk.0.ssm_out.weight has type Q8_0, in which 32 columns share a scale" in str(caught.value)
    assert "allowed with value heads of 8 columns: F64, F32, F16, BF16, and types" in str(caught.value)


@pytest.mark.parametrize(
    ("architecture", "key", "value", "words"),
    [
        ("qwen35", "ssm.group_count", 0, "ssm.group_count must be a whole number, at least 1"),
        ("qwen35", "ssm.time_step_rank", 3, "ssm.time_step_rank must be a multiple of ssm.group_count, 2; got 3"),
        ("qwen35", "ssm.inner_size", 33, "ssm.inner_size must be 1 to 1024 numbers for each of 4 value heads; got 33"),
        ("qwen35", "ssm.inner_size", 1 << 20, "ssm.inner_size must be 1 to 1024 numbers for each of 4 value heads"),
        ("qwen35", "ssm.inner_size", 2, "ssm.inner_size must be 1 to 1024 numbers for each of 4 value heads; got 2"),
        ("qwen35", "ssm.state_size", 2048, "ssm.state_size must be at most 1024; got 2048"),
        ("qwen35", "ssm.conv_kernel", "four", "ssm.conv_kernel must be a whole number, at least 1"),
        ("qwen35", "full_attention_interval", 0, "full_attention_interval must be a whole number, at least 1"),
        ("qwen35", "attention.recurrent_layers", [True], "or true or false for each of 2 layers; got"),
        ("qwen35", "attention.recurrent_layers", 2, "must be true or false for each of 2 layers; got 2"),
        ("qwen35", "attention.recurrent_layers", [True, True], "layer_types must name full_attention for at least one"),
        ("qwen35", "attention.sliding_window", 64, "sliding_window must be null for qwen3_5_text; got 64"),
        ("qwen35", "nextn_predict_layers", 2, "nextn_predict_layers must be a whole number, at most 1; got 2"),
        ("qwen35", "nextn_predict_layers", "one", "nextn_predict_layers must be a whole number, at most 1; got 'one'"),
        ("qwen35moe", "expert_count", 1 << 20, "expert_count must be at most 1024"),
        ("qwen35moe", "expert_weights_norm", False, "norm_topk_prob must be True; got False"),
    ],
)  # fmt: skip
def test_a_key_that_cannot_be_is_refused_by_name(tmp_path, architecture, key, value, words):
    with pytest.raises(ModelError) as caught:
        read_config(locate_model(str(written(tmp_path, architecture=architecture, extra={key: value})[1])))
    assert words in str(caught.value)


@pytest.mark.parametrize("key", ["group_count", "time_step_rank", "inner_size", "state_size", "conv_kernel"])
def test_a_size_that_is_missing_is_named(tmp_path, monkeypatch, key):
    add = conversion.add
    monkeypatch.setattr(conversion, "add", lambda writer, name, value: key in name or add(writer, name, value))
    with pytest.raises(ModelError, match=rf"qwen35\.ssm\.{key} must be a whole number, at least 1.*; got None"):
        locate_model(str(written(tmp_path)[1]))


@pytest.mark.parametrize("wrong", [0.0, 0.5, float("nan"), float("-inf")])
def test_decay_that_no_logarithm_has_is_refused_by_name(tmp_path, wrong):
    _, file = written(tmp_path)
    at = open_files([file]).tensors["blk.0.ssm_a"].info.begin
    content = bytearray(file.read_bytes())
    content[at + 4 : at + 8] = np.float32(wrong).tobytes()
    file.write_bytes(content)
    with pytest.raises(ModelError, match=r"tensor blk\.0\.ssm_a must have negative numbers alone, all of them finite"):
        opened(file).take(f"{NET}linear_attn.A_log")


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_gates_and_ups_of_experts_may_be_one_stack(tmp_path, monkeypatch, kind):
    sizes = {"moe_intermediate_size": 64, "shared_expert_intermediate_size": 64, "linear_value_head_dim": 32}
    apart = opened(written(tmp_path / "apart", kind, "qwen35moe", **sizes)[1])
    monkeypatch.setattr(qwen35_conversion, "converted", with_joined_stacks)
    together = opened(written(tmp_path / "together", kind, "qwen35moe", **sizes)[1])
    assert "blk.0.ffn_gate_up_exps.weight" in together.source.file.tensors
    assert together.names == apart.names
    for name in (name for name in apart.names if ".experts." in name):
        assert torch.equal(dense(together.take(name)), dense(apart.take(name)))
        assert torch.equal(dense(together.rows(name, slice(5, 9))), dense(apart.rows(name, slice(5, 9))))


def with_joined_stacks(tensors, config, converted=qwen35_conversion.converted):
    found = converted(tensors, config)
    for layer in range(config["num_hidden_layers"]):
        halves = [found.pop(f"blk.{layer}.ffn_{half}_exps.weight") for half in ("gate", "up")]
        found[f"blk.{layer}.ffn_gate_up_exps.weight"] = np.concatenate(halves, axis=1)
    return found


REQUESTS = [toy_request(f"{i}", tuple(range(3 + i, 90, 7)), max_tokens=24, ignore_eos=True) for i in range(3)]


@pytest.mark.usefixtures("each_kernel_set")
@pytest.mark.parametrize("architecture", FAMILY)
def test_greedy_tokens_are_those_of_the_model_that_was_converted(tmp_path, architecture):
    original, file = written(tmp_path, architecture=architecture, num_hidden_layers=4)
    wanted = run(original, REQUESTS, dtype="float32").tokens()
    assert run(str(file), REQUESTS, plugins=("gguf",), dtype="float32").tokens() == wanted


def test_drafts_change_nothing_with_the_native_kernels_on_the_integers(quantised):
    _, file = quantised("Q4_K-narrow")
    plain = run(str(file), REQUESTS, plugins=("gguf", "cpu"), dtype="bfloat16", max_num_seqs=1)
    drafted = run(str(file), REQUESTS, plugins=("gguf", "cpu", "ngram"), dtype="bfloat16")
    assert drafted.decided() == plain.decided()
    assert accepted(drafted)[0] > 0
