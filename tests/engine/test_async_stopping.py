"""The engine for asyncio: drains, and stops that leave nobody waiting."""

from __future__ import annotations

import asyncio

import pytest
from running_engine import SECONDS, collect, endless, merged, started, until

from specserve.errors import EngineDeadError
from specserve_workbench.testing.engines import run
from specserve_workbench.testing.requests import toy_request


async def test_a_drain_lets_running_requests_finish(toy_model):
    request = toy_request("r", range(1, 20), max_tokens=40, ignore_eos=True)
    async with started(toy_model) as engine:
        reader = asyncio.create_task(collect(engine, request))
        await until(lambda: engine.metrics.generation_tokens > 0)
        await engine.stop(drain_seconds=SECONDS)
        assert list(merged(await reader).tokens) == run(toy_model, [request]).tokens()["r"]
        assert engine.status == "draining"


@pytest.mark.parametrize("seconds", [0.0, 0.05])
async def test_who_is_not_done_when_the_drain_is_over_gets_an_error(toy_model, seconds):
    async with started(toy_model, max_num_seqs=2) as engine:
        readers = [asyncio.create_task(collect(engine, endless(str(i)))) for i in range(4)]
        await until(lambda: engine.metrics.generation_tokens > 0)
        await asyncio.wait_for(engine.stop(drain_seconds=seconds), SECONDS)
        for answer in await asyncio.gather(*readers, return_exceptions=True):
            assert isinstance(answer, EngineDeadError)
            assert "shutting down" in str(answer)


async def test_a_request_after_the_stop_is_refused_and_does_not_hang(toy_model):
    async with started(toy_model) as engine:
        await engine.stop()
        with pytest.raises(EngineDeadError):
            await collect(engine, toy_request("late", [1]))


async def test_stopping_twice_is_stopping_once(toy_model):
    async with started(toy_model) as engine:
        await engine.stop()
        await engine.stop()
        assert not engine.thread.is_alive()
