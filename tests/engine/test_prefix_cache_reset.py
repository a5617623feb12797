"""Forgetting cached prefixes: nothing is found afterwards, running requests do not notice, no block is lost."""

from __future__ import annotations

import asyncio

import pytest
from running_engine import collect, endless, free_again, merged, started, until

from specserve.errors import EngineDeadError
from specserve_workbench.testing.engines import make_engine, run_requests
from specserve_workbench.testing.requests import toy_request, varied_requests

PROMPT = range(1, 60)


async def cached_tokens(engine, name):
    return merged(await collect(engine, toy_request(name, PROMPT, max_tokens=4))).cached_tokens


async def test_a_repeated_prompt_is_computed_again_after_a_reset(toy_model):
    async with started(toy_model) as engine:
        assert await cached_tokens(engine, "first") == 0
        assert await cached_tokens(engine, "again") == 48
        await engine.reset_prefix_cache()
        pool = engine.engine.scheduler.pool
        assert not pool.hash_of
        assert len(pool.free) == pool.num_blocks
        assert await cached_tokens(engine, "after") == 0
        assert await cached_tokens(engine, "cached again") == 48


async def test_a_prefix_that_a_running_request_uses_stays(toy_model):
    async with started(toy_model) as engine:
        assert await cached_tokens(engine, "first") == 0
        running = asyncio.create_task(collect(engine, toy_request("runs", PROMPT, max_tokens=1000, ignore_eos=True)))
        await until(lambda: engine.metrics.generation_tokens > 20)
        await engine.reset_prefix_cache()
        assert await cached_tokens(engine, "again") == 48
        running.cancel()
        await until(lambda: free_again(engine))


@pytest.mark.parametrize(("options", "preempts"), [({}, False), ({"kv_memory": "512K"}, True)])
def test_resets_between_all_steps_change_no_token_and_lose_no_block(toy_model, options, preempts):
    requests = varied_requests(24)
    whole = make_engine(toy_model, **options)
    expected = run_requests(whole.engine, requests).decided()
    engine = make_engine(toy_model, **options).engine
    step = engine.step

    def step_and_reset():
        outputs = step()
        engine.reset_prefix_cache()
        engine.check_integrity()
        assert not engine.scheduler.pool.idle
        return outputs

    engine.step = step_and_reset
    assert run_requests(engine, requests).decided() == expected
    assert len(engine.scheduler.pool.free) == engine.scheduler.pool.num_blocks
    assert (engine.metrics.num_preemptions > 0) is preempts


async def test_resets_while_requests_run_do_not_change_them(toy_model):
    requests = [toy_request(str(i), range(i, i + 50), seed=i, temperature=0.9, max_tokens=60) for i in range(1, 7)]
    async with started(toy_model) as engine:
        alone = [merged(await collect(engine, request)).tokens for request in requests]
        together = [asyncio.create_task(collect(engine, request)) for request in requests]
        while not all(task.done() for task in together):
            await engine.reset_prefix_cache()
        assert [merged(task.result()).tokens for task in together] == alone
        await until(lambda: free_again(engine))


async def test_a_dead_engine_resets_nothing(toy_model):
    async with started(toy_model) as engine:
        engine.engine.scheduler.schedule = lambda: 1 / 0
        reader = asyncio.create_task(collect(engine, endless()))
        await engine.failed()
        with pytest.raises(EngineDeadError, match="restart"):
            await engine.reset_prefix_cache()
        await asyncio.gather(reader, return_exceptions=True)


async def test_a_reset_is_told_when_the_engine_dies_before_it(toy_model):
    async with started(toy_model) as engine:
        engine.engine.scheduler.schedule = lambda: 1 / 0
        engine.engine.reset_prefix_cache = lambda: 1 / 0
        with pytest.raises(EngineDeadError, match="ZeroDivisionError"):
            await engine.reset_prefix_cache()


async def test_a_reset_does_not_wait_for_an_engine_that_stops(toy_model):
    async with started(toy_model) as engine:
        engine.thread.call = lambda action, done: None  # the thread ends before it would run the command
        reset = asyncio.create_task(engine.reset_prefix_cache())
        await asyncio.sleep(0)
        await engine.stop()
        with pytest.raises(EngineDeadError, match="shutting down"):
            await reset
        assert not engine.commands


async def test_a_client_that_leaves_during_a_reset_harms_nothing(toy_model):
    async with started(toy_model) as engine:
        reset = asyncio.create_task(engine.reset_prefix_cache())
        await asyncio.sleep(0)
        reset.cancel()
        await asyncio.gather(reset, return_exceptions=True)
        await engine.reset_prefix_cache()
        assert merged(await collect(engine, toy_request("later", [1]))).finish_reason in ("stop", "length")
