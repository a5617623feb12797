"""Adapters on several ranks: each rank adds its part, and the parts are those of the whole adapter."""

from __future__ import annotations

import gc

import pytest
from expert_adapters import write_per_expert, write_stacked
from rank_engines import ranks_of

from specserve_lora.adapter_dir import unconfined_dir
from specserve_tensor_parallel.messages import FreeAdapter
from specserve_workbench.testing.engines import run_requests
from specserve_workbench.testing.requests import varied_requests
from specserve_workbench.testing.toy import write_checkpoint
from toy_adapters import lora_engine, lora_of, lora_options, tensors_of, under, write_adapter, write_adapters


@pytest.mark.parametrize(("ranks", "architecture", "kernels"), [
    (2, "llama", "torch"), pytest.param(4, "qwen2", "cpu", marks=pytest.mark.sweep),
])  # fmt: skip
def test_adapters_have_the_effect_that_they_have_on_one_rank(tmp_path, ranks, architecture, kernels):
    """All seven maps, of ranks up to 33; four ranks share two key heads."""
    model = write_checkpoint(tmp_path / "model", architecture=architecture)
    adapters = write_adapters(tmp_path / "adapters", model, 5)
    requests, options = varied_requests(12, seed=2), {"default_plugins": kernels == "cpu"}
    names = [[None, *adapters][i % 6] for i in range(12)]
    alone, store = lora_engine(model, adapters, **options)
    expected = run_requests(alone, under(store, requests, names)).tokens()
    with ranks_of(model, ranks, ("lora",), lora_options(adapters), **options) as engine:
        got = run_requests(engine, under(lora_of(engine), requests, names)).tokens()
        base = run_requests(engine, requests).tokens()
    assert got == expected
    assert sum(got[name] != base[name] for name in got) > 5, "adapters change most texts"


@pytest.mark.parametrize("architecture", ["phi3", "qwen3_moe"])
def test_one_part_over_several_maps_reaches_each_of_them(tmp_path, architecture):
    """Adapters of Phi-3's fused maps, and of the parameters that hold all experts; beside one of each map."""
    model = write_checkpoint(tmp_path / "model", architecture=architecture)
    if architecture == "phi3":
        shapes = {
            f"model.layers.{layer}.{name}": (rows, 128)
            for layer in (0, 1)
            for name, rows in (("self_attn.qkv_proj", 256), ("mlp.gate_up_proj", 640))
        }
        fused = write_adapter(tmp_path / "fused", model, targets=["qkv_proj", "gate_up_proj"], rank=5,
                              tensors=tensors_of(shapes, 5, size=0.6))  # fmt: skip
        apart = write_adapter(tmp_path / "apart", model, seed=3)
    else:
        fused, apart = write_stacked(tmp_path / "fused", model), write_per_expert(tmp_path / "apart", model, seed=3)
    adapters, requests = {"fused": fused, "apart": apart}, varied_requests(9, seed=2)
    names = [[None, *adapters][i % 3] for i in range(9)]
    alone, store = lora_engine(model, adapters)
    expected = run_requests(alone, under(store, requests, names)).tokens()
    with ranks_of(model, 2, ("lora",), lora_options(adapters)) as engine:
        assert run_requests(engine, under(lora_of(engine), requests, names)).tokens() == expected
        base = run_requests(engine, requests).tokens()
    assert sum(expected[name] != base[name] for name in base) > 3, "adapters change most texts"


def record_sent(ranks):
    """What all ranks are told from now on."""
    told, send = [], ranks.send

    def send_and_record(message):
        told.append(message)
        send(message)

    ranks.send = send_and_record
    return told


def test_an_adapter_that_is_loaded_while_serving_reaches_every_rank_until_its_last_user_ends(tmp_path, toy_model):
    first = write_adapter(tmp_path / "first", toy_model, seed=1, size=0.6)
    second = write_adapter(tmp_path / "second", toy_model, seed=2, size=0.6)
    requests = varied_requests(6, seed=4)
    with ranks_of(toy_model, 2, ("lora",), lora_options({"first": first}, max_loaded=1)) as engine:
        store, numbers = lora_of(engine), engine.runner.adapters.numbers
        assert list(numbers.values()) == [1]
        told = record_sent(engine.runner.ranks)
        store.load("second", unconfined_dir(str(second)))
        gc.collect()
        assert list(numbers.values()) == [2], "the first was evicted"
        assert told == [FreeAdapter(1)]
        adapted = under(store, requests, ["second"] * 6)
        got = run_requests(engine, adapted).tokens()
    alone, alone_store = lora_engine(toy_model, {"second": second})
    assert got == run_requests(alone, under(alone_store, requests, ["second"] * 6)).tokens()
