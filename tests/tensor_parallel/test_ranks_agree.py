"""Ranks that would differ are brought into line at start-up, or refused: blocks, kernels, attention, additions."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from rank_engines import rank_options, ranks_of

from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.errors import ConfigError
from specserve.hookspecs import hookimpl
from specserve_tensor_parallel import leading
from specserve_tensor_parallel.messages import Load
from specserve_workbench.testing.engines import make_engine, plain_run, run_requests
from specserve_workbench.testing.requests import varied_requests


@pytest.fixture
def load_with(monkeypatch):
    """Have the other ranks load by a configuration with these changes."""

    def change(**changes):
        def load(rank, ranks, config, *others):
            return Load(rank, ranks, replace(config, **changes), *others)

        monkeypatch.setattr(leading, "Load", load)

    return change


def test_there_are_as_many_blocks_as_the_rank_with_the_least_memory_has(toy_model, load_with):
    load_with(kv_memory="256K")
    requests = varied_requests(6)
    with ranks_of(toy_model, kv_memory="8M") as engine:
        cache = engine.parts.cache
        assert cache.data.numel() * cache.data.itemsize <= 2**18
        assert run_requests(engine, requests).tokens() == plain_run(toy_model, requests).tokens()


def test_a_rank_with_other_kernels_is_refused(toy_model, load_with):
    load_with(default_plugins=True)
    with pytest.raises(ConfigError, match=r"rank 1 computes with cpu-\w+ and cpu_paged, rank 0 with torch and sdpa"):
        make_engine(toy_model, **rank_options(2))


def test_a_rank_that_cannot_load_its_part_stops_the_start_with_its_reason(toy_model, load_with):
    load_with(model="/no/such/model")
    with pytest.raises(ConfigError, match=r"rank 1 cannot load its part of the model: .*/no/such/model"):
        make_engine(toy_model, **rank_options(2))


def test_additions_that_only_rank_0_could_compute_are_refused(toy_model):
    class Adds:
        @hookimpl
        def adapt_model(self, model):
            model.projections["layers.0.o_proj"].add_delta(lambda x, out, rows, lora: out.add_(1.0))

    adds = InProcessPlugin(Adds(), PluginDeclaration(name="adds", provides={"lora.target": "a test's additions"}))
    with pytest.raises(ConfigError, match=r"adds to projection layers.0.o_proj what only it can compute"):
        make_engine(toy_model, extra={"adds": adds}, **rank_options(2))
