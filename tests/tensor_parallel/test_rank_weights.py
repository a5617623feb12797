"""Each rank loads its part of the weights and no more, of quantised checkpoints and of families of plugins, too."""

from __future__ import annotations

import pytest
from rank_engines import assert_same_as_one_rank, ranks_of

from affine_checkpoints import Form, write_affine
from compressed_checkpoints import write_compressed
from gpt_oss_attention import FAMILY
from specserve.errors import ConfigError
from specserve.models.checkpoint import Checkpoint
from specserve.models.read_config import read_config
from specserve.protocols.part import TensorPart
from specserve_tensor_parallel.shares import Shares
from specserve_workbench.testing.requests import toy_request, varied_requests
from specserve_workbench.testing.toy import write_checkpoint

GREEDY = [toy_request(f"g{i}", range(i, i + 20), max_tokens=20, logprobs=1) for i in range(3)]


def test_a_rank_holds_its_part_of_every_matrix(toy_model):
    with ranks_of(toy_model, kv_memory="1M") as engine:
        model, cache = engine.runner.model, engine.parts.cache
        shapes = {name: (p.out_features, p.in_features) for name, p in model.projections.items() if "1." in name}
    assert shapes == {
        "layers.1.qkv_proj": (128, 128), "layers.1.o_proj": (128, 64),
        "layers.1.gate_up_proj": (320, 128), "layers.1.down_proj": (128, 160),
    }  # fmt: skip
    assert model.projections["lm_head"].out_features == len(model.embedding) == model.vocab_size / 2
    assert model.num_kv_heads == 1
    assert cache.data.numel() * 4 <= 2**19, "half of the memory for keys and values"


def test_rows_that_a_rank_does_not_have_are_never_read(toy_model, monkeypatch):
    read = {}
    rows_of = Checkpoint.rows

    def rows(self, name, rows=slice(None)):
        tensor = rows_of(self, name, rows)
        read[name] = tensor.shape[0]
        return tensor

    monkeypatch.setattr(Checkpoint, "rows", rows)
    with ranks_of(toy_model):
        pass
    assert read["model.layers.0.self_attn.q_proj.weight"] == 64
    assert read["model.layers.0.mlp.up_proj.weight"] == 160
    assert read["lm_head.weight"] == read["model.embed_tokens.weight"]


@pytest.mark.parametrize(("kind", "group_size", "kernels"), [
    ("pack-quantized", 32, "cpu"), ("int-quantized", None, "torch"),
])  # fmt: skip
def test_quantised_weights_are_cut_at_their_groups(tmp_path, kind, group_size, kernels):
    model = write_checkpoint(tmp_path / "whole")
    quantised = write_compressed(model, tmp_path / "quantised", kind=kind, group_size=group_size)
    without = () if kernels == "cpu" else ("cpu",)
    assert_same_as_one_rank(quantised, GREEDY, dtype="float32", default_plugins=True, no_plugins=without)


@pytest.mark.parametrize("form", [Form("gptq"), Form("awq"), Form("gptq", ordered=True)], ids=str)
def test_zero_points_and_orders_are_cut_with_their_groups(tmp_path, form):
    written = write_affine(write_checkpoint(tmp_path / "whole"), tmp_path / "quantised", form)
    assert_same_as_one_rank(written.path, GREEDY, dtype="float32", default_plugins=True)


def test_groups_that_would_be_cut_are_refused(tmp_path):
    model = write_checkpoint(tmp_path / "whole", intermediate_size=192)
    quantised = write_compressed(model, tmp_path / "quantised", group_size=64)
    with (
        pytest.raises(ConfigError, match=r"down_proj.weight cannot be cut: columns 0 to 96 are not whole groups of 64"),
        ranks_of(quantised, beside=("quantised",)),
    ):
        pass


def test_sampled_texts_of_a_model_with_windows_are_those_of_one_rank(tmp_path):
    model = write_checkpoint(tmp_path / "model", architecture="mistral", sliding_window=24)
    assert_same_as_one_rank(model, [*GREEDY, *varied_requests(5, seed=9)], default_plugins=True)


def test_a_rank_has_the_sinks_of_its_query_heads(tmp_path):
    path = write_checkpoint(tmp_path, architecture=FAMILY, num_attention_heads=6, num_key_value_heads=2)
    config = read_config(path, [FAMILY])
    parts = [Shares(config, rank, 2).tensor("model.layers.1.self_attn.sinks") for rank in range(2)]
    assert parts == [TensorPart(slice(0, 3)), TensorPart(slice(3, 6))]


@pytest.mark.parametrize("kernels", ["cpu", "torch"])
def test_experts_are_divided_by_their_own_width(tmp_path, kernels):
    """One layer is plain, and narrower."""
    more = {"moe_intermediate_size": 400, "mlp_only_layers": [1]}
    model = write_checkpoint(tmp_path / "model", architecture="qwen3_moe", **more)
    assert_same_as_one_rank(model, GREEDY, default_plugins=kernels == "cpu")


@pytest.mark.parametrize("architecture", ["qwen2_moe", "granitemoeshared"])
def test_a_shared_expert_is_divided_by_its_own_width(tmp_path, architecture):
    width = "shared_intermediate_size" if architecture == "granitemoeshared" else "shared_expert_intermediate_size"
    model = write_checkpoint(tmp_path / "model", architecture=architecture, **{width: 300})
    assert_same_as_one_rank(model, GREEDY, default_plugins=True)
