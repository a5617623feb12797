"""Adapters on several ranks: each rank adds its part, and the parts are those of the whole adapter."""

from __future__ import annotations

import gc

import pytest
from rank_engines import ranks_of
from toy_adapters import lora_engine, lora_of, lora_options, under, write_adapter, write_adapters

from specserve_lora.adapter_dir import unconfined_dir
from specserve_tensor_parallel.messages import FreeAdapter
from specserve_workbench.testing.engines import run_requests
from specserve_workbench.testing.requests import varied_requests
from specserve_workbench.testing.toy import write_checkpoint


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
