"""On the device: adapters, measured costs, and the server from outside."""

from __future__ import annotations

import asyncio

import pytest
import torch
from sizes import NUM_REQUESTS, each_dtype

from specserve.config import EngineConfig
from specserve.engine.measure_costs import CostProbe, measure_costs
from specserve_server.config import ServerConfig
from specserve_workbench.testing.drafters import OracleDrafter
from specserve_workbench.testing.engines import DEFAULTS, make_engine, run, run_requests
from specserve_workbench.testing.requests import varied_requests

pytestmark = pytest.mark.gpu


@each_dtype
def test_segments_get_what_their_adapters_add(dtype):
    from lowrank_checks import check_segments_get_what_their_adapters_add

    from specserve_cuda.kernels.kernel_set import CudaKernels

    torch.manual_seed(0)
    check_segments_get_what_their_adapters_add(CudaKernels(), dtype, "cuda")


def test_costs_are_measured_behind_the_device_and_the_engines_own_planner_changes_nothing(toy_model):
    """It drafts for few requests; elsewhere here everything is verified."""
    options = {"device": "cuda", "dtype": "bfloat16"}
    requests = varied_requests(NUM_REQUESTS)
    plain = run(toy_model, requests, **options)
    parts = make_engine(toy_model, **options).engine.parts
    costs = measure_costs(CostProbe(parts.runner, parts.builder, 64, 64, torch.cuda.synchronize), 2.0)
    assert costs.rows == sorted(costs.rows)
    assert 0 < min(costs.seconds) < 1.0
    extra = {"drafter": planned_by_default(plain.tokens())}
    drafted = run_requests(make_engine(toy_model, extra=extra, **options).engine, requests)
    assert drafted.decided() == plain.decided()


def planned_by_default(tokens):
    from specserve_workbench.testing.engines import drafter_plugin

    return drafter_plugin(lambda: OracleDrafter(tokens, 4))


def test_a_server_answers_and_survives_a_client_that_leaves(toy_model):
    pytest.importorskip("aiohttp")
    asyncio.run(asyncio.wait_for(ask_a_server(toy_model), 120))


async def ask_a_server(model):
    from aiohttp.test_utils import TestClient, TestServer

    from specserve.engine.async_engine import AsyncEngine
    from specserve_server.app.application import make_app

    config = EngineConfig(model=str(model), device="cuda", dtype="bfloat16", **DEFAULTS)
    engine = await AsyncEngine.start(config)
    try:
        async with TestClient(TestServer(make_app(engine, ServerConfig()))) as client:
            body = {"model": str(model), "prompt": "hello", "max_tokens": 12, "ignore_eos": True, "seed": 1}
            for temperature in (0.0, 0.9):
                asked = [client.post("/v1/completions", json={**body, "temperature": temperature}) for _ in range(4)]
                answers = [await answer.json() for answer in await asyncio.gather(*asked)]
                assert [a["usage"]["completion_tokens"] for a in answers] == [12] * 4, answers
                assert len({a["choices"][0]["text"] for a in answers}) == 1
            leaving = await client.post("/v1/completions", json={**body, "max_tokens": 200, "stream": True})
            await leaving.content.readline()
            leaving.close()
            answer = await client.post("/v1/completions", json={**body, "prompt": [5] * 9})
            assert answer.status == 200
    finally:
        await engine.stop()
