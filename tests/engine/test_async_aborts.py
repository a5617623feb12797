"""The engine for asyncio: aborts that free blocks, request ids used again, and refusals."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import aclosing

import pytest
from running_engine import collect, endless, free_again, merged, started, until

from specserve.errors import QueueFullError, RequestError
from specserve_workbench.testing.engines import run
from specserve_workbench.testing.requests import toy_request


async def test_closing_the_generator_aborts_and_frees_the_blocks_by_the_next_step(toy_model):
    async with started(toy_model) as engine:
        async with aclosing(engine.submit(endless())) as stream:
            await anext(stream)
            assert not free_again(engine)
        await until(lambda: free_again(engine))
        assert engine.metrics.request_success == {"abort": 1}
        assert not engine.mailboxes


async def test_an_action_after_aborts_runs_when_the_engine_has_forgotten_the_request(toy_model):
    seen = []
    async with started(toy_model) as engine:
        async with aclosing(engine.submit(endless())) as outputs:
            await anext(outputs)
        engine.after_aborts(lambda: seen.append((list(engine.engine.requests), threading.current_thread().name)))
        await until(lambda: seen)
        assert seen == [([], "specserve-step")]
    engine.after_aborts(lambda: seen.append("ended"))
    assert seen[-1] == "ended"


@pytest.mark.parametrize("read", [0, 1])
async def test_cancelling_the_reader_aborts_its_request_and_no_other(toy_model, read):
    neighbour = toy_request("neighbour", range(30, 50), max_tokens=40, ignore_eos=True)
    async with started(toy_model, max_num_batched_tokens=8) as engine:
        tasks = [asyncio.create_task(collect(engine, r)) for r in (endless("gone"), neighbour)]
        await until(lambda: len(engine.mailboxes) == 2 and engine.metrics.generation_tokens >= read)
        tasks[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        assert list(merged(await tasks[1]).tokens) == run(toy_model, [neighbour]).tokens()["neighbour"]
        await until(lambda: free_again(engine))


async def test_a_request_id_can_be_used_again_after_it_ended_and_not_before(toy_model):
    short = toy_request("r", [1, 2], max_tokens=4, ignore_eos=True)
    async with started(toy_model) as engine:
        async with aclosing(engine.submit(endless("r"))) as stream:
            await anext(stream)
            with pytest.raises(RequestError, match="'r' is running already") as refusal:
                await collect(engine, short)
            assert refusal.value.param == "request_id"
            assert (await anext(stream)).tokens, "the one that runs is not disturbed"
        expected = run(toy_model, [short]).tokens()["r"]
        for _ in range(3):
            assert list(merged(await collect(engine, short)).tokens) == expected


async def test_a_reused_id_hears_nothing_of_its_predecessor(toy_model):
    """The step that runs while the generator is closed still computes a token of the old request."""
    short = toy_request("r", [1, 2], max_tokens=4, ignore_eos=True)
    expected = run(toy_model, [short]).tokens()["r"]
    async with started(toy_model) as engine:
        forward, computing = engine.engine.runner.forward, threading.Event()

        def slow_forward(batch):
            computing.set()
            time.sleep(0.03)
            return forward(batch)

        engine.engine.runner.forward = slow_forward
        async with aclosing(engine.submit(endless("r"))) as stream:
            await anext(stream)
            computing.clear()
            await until(computing.is_set)
        assert list(merged(await collect(engine, short)).tokens) == expected


async def test_a_bad_request_is_refused_before_anything_happens(toy_model):
    async with started(toy_model, max_waiting=1) as engine:
        with pytest.raises(RequestError, match="top_p"):
            await collect(engine, toy_request("r", [1], top_p=3.0))
        assert not engine.mailboxes


async def test_a_full_queue_refuses(toy_model):
    async with started(toy_model, max_waiting=1, max_num_seqs=1) as engine:
        first, second = (asyncio.create_task(collect(engine, endless(name))) for name in ("first", "second"))
        await until(lambda: len(engine.engine.scheduler.waiting) == 1)
        with pytest.raises(QueueFullError):
            await collect(engine, endless("third"))
        first.cancel()
        second.cancel()
