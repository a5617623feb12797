"""What cannot be divided is refused with what can; every number of a model is one rank's, or shared."""

from __future__ import annotations

import msgspec
import pytest
import torch
from rank_engines import NAME, rank_options

from specserve.config import EngineConfig
from specserve.errors import ConfigError, PluginError
from specserve.models.read_config import read_config
from specserve.models.tensor_names import expected_shapes
from specserve.plugins.host import PluginHost
from specserve_tensor_parallel.leading import environments, share_of
from specserve_tensor_parallel.shares import Shares, check_divisible, share
from specserve_workbench.testing.engines import make_engine, plain_run, run_requests
from specserve_workbench.testing.requests import varied_requests
from specserve_workbench.testing.toy import write_checkpoint


@pytest.mark.parametrize(("ranks", "message"), [
    (3, "same number of query heads, of which this model has 4; got 3. .* this model allows 2, 4."),
    (8, "same number of query heads, of which this model has 4; got 8."),
])  # fmt: skip
def test_ranks_that_do_not_divide_the_heads_are_refused_with_those_that_do(toy_model, ranks, message):
    with pytest.raises(ConfigError, match=message):
        make_engine(toy_model, **rank_options(ranks))


def test_key_heads_that_cannot_be_shared_evenly_are_refused(tmp_path):
    model = write_checkpoint(tmp_path / "model", num_attention_heads=6, num_key_value_heads=2)
    with pytest.raises(ConfigError, match=r"share them evenly; this model has 2; got 3. .*this model allows 2, 6"):
        make_engine(model, **rank_options(3))


def test_a_norm_of_all_heads_is_not_divided(tmp_path):
    model = write_checkpoint(tmp_path / "model", architecture="olmo2")
    with pytest.raises(ConfigError, match=r"norms the queries of all heads together; got 2\..*allows none but 1"):
        make_engine(model, **rank_options(2))


def test_layers_without_attention_are_refused(tmp_path):
    model = write_checkpoint(tmp_path / "model", architecture="lfm2")
    with pytest.raises(ConfigError, match=r"this model has layers without attention; got 2\..*allows none but 1"):
        make_engine(model, **rank_options(2))


def test_decoders_that_are_not_plain_are_refused(tmp_path):
    model = write_checkpoint(tmp_path / "model", architecture="gemma4_text")
    with pytest.raises(ConfigError, match=r"plain decoders, .* gemma4_text \(VariedDecoder\) is none; got 2\."):
        make_engine(model, **rank_options(2))


def test_gates_of_attention_are_not_divided(tmp_path):
    config = read_config(write_checkpoint(tmp_path / "model"))
    check_divisible(config, 2)
    with pytest.raises(ConfigError, match=r"gates of heads are not divided; got 2\..*allows none but 1"):
        check_divisible(msgspec.structs.replace(config, attention_gate="head"), 2)


def test_fewer_columns_than_ranks_are_refused(tmp_path):
    model = write_checkpoint(tmp_path / "model", intermediate_size=3)
    with pytest.raises(ConfigError, match="a part of the inner width 3"):
        make_engine(model, **rank_options(4))


@pytest.mark.parametrize("ranks", [0, -1, 65, "two"])
def test_a_number_of_ranks_that_means_nothing_is_refused(ranks):
    with pytest.raises(ConfigError, match=f"{NAME}.ranks: must be a whole number from 1 to 64"):
        PluginHost.start(EngineConfig(plugins=(NAME,), plugin_options={NAME: {"ranks": ranks}}, default_plugins=False))


def test_one_rank_is_the_plain_engine(toy_model):
    requests = varied_requests(6)
    engine = make_engine(toy_model, **rank_options(1)).engine
    assert run_requests(engine, requests).decided() == plain_run(toy_model, requests).decided()


def test_more_ranks_than_cuda_devices_are_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ConfigError, match="got 2 ranks, and torch sees 1 devices"):
        environments("cuda", 2)


def test_each_rank_has_the_next_of_the_visible_cuda_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,2,7")
    assert environments("cuda", 3) == [{"CUDA_VISIBLE_DEVICES": "2"}, {"CUDA_VISIBLE_DEVICES": "7"}]


def test_graphs_are_refused_with_the_reason():
    config = EngineConfig(plugins=(NAME, "graphs"), graphs="full", default_plugins=False)
    with pytest.raises(PluginError, match="the ranks' sums come in between"):
        PluginHost.start(config)


def test_threads_and_configured_memory_are_shared_among_the_ranks():
    whole = EngineConfig(threads=5, kv_memory="1M")
    assert share_of(whole, 2).threads == 2
    assert share_of(whole, 8).threads == 1
    assert share_of(whole, 4).kv_memory == str(2**18)


@pytest.mark.parametrize(("size", "ranks"), [(331, 3), (64, 4), (5, 5)])
def test_shares_of_all_ranks_are_all_in_order(size, ranks):
    shares = [share(size, rank, ranks) for rank in range(ranks)]
    assert [i for each in shares for i in range(size)[each]] == list(range(size))
    sizes = [each.stop - each.start for each in shares]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("family", [
    {"attention_bias": True, "mlp_bias": True, "intermediate_size": 321},
    {"architecture": "qwen3_moe", "moe_intermediate_size": 401, "mlp_only_layers": [1]},
    {"architecture": "qwen2_moe", "moe_intermediate_size": 401, "shared_expert_intermediate_size": 403},
], ids=["llama", "qwen3_moe", "qwen2_moe"])  # fmt: skip
def test_every_number_of_a_checkpoint_is_read_by_some_rank(tmp_path, family, ranks):
    """By one rank: except norms, routers, and key heads that several ranks share."""
    model = write_checkpoint(tmp_path / "model", **family)
    config = read_config(model)
    if config.experts is not None:
        parts = [Shares(config, rank, ranks).numbers(config).experts for rank in range(ranks)]
        assert sum(part.inner_size for part in parts if part) == config.experts.inner_size
        shared = [part.shared_size for part in parts if part and part.shared_size]
        assert (sum(shared) or None) == config.experts.shared_size
    for name, shape in expected_shapes(config).items():
        counts = torch.zeros(shape, dtype=torch.int64)
        for rank in range(ranks):
            part = Shares(config, rank, ranks).tensor(name)
            if part is not None:
                own = counts[tuple(part)[: len(shape)]]
                assert own.shape == part.shape_of(shape)
                own += 1
        whole = "norm" in name or name.endswith(("mlp.gate.weight", "mlp.shared_expert_gate.weight"))
        shared = ranks if whole else 2 if ranks == 4 and ("k_proj" in name or "v_proj" in name) else 1
        assert counts.unique().tolist() == [shared], name
