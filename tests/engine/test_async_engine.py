"""The engine for asyncio: the outputs of the synchronous one, for slow readers too."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from running_engine import SECONDS, collect, endless, merged, started, until, with_oracle

from specserve.engine.mailbox import Mailbox
from specserve.errors import EngineDeadError
from specserve.types import RequestOutput
from specserve_workbench.testing.engines import plain_run, run
from specserve_workbench.testing.requests import toy_request, varied_requests


async def test_submit_streams_what_the_synchronous_engine_gives(toy_model):
    request = toy_request("r", range(1, 20), max_tokens=20, ignore_eos=True, logprobs=2, prompt_logprobs=1)
    expected = merged(run(toy_model, [request]).outputs["r"].steps)
    async with started(toy_model) as engine:
        outputs = await collect(engine, request)
    assert merged(outputs) == expected
    assert [output.finish_reason for output in outputs[:-1]] == [None] * (len(outputs) - 1)


@pytest.mark.parametrize("speculative", [False, True])
async def test_many_concurrent_requests_get_their_own_answers(toy_model, speculative):
    requests = varied_requests(40)
    expected = plain_run(toy_model, requests)
    options = with_oracle(expected.tokens()) if speculative else {}
    async with started(toy_model, **options) as engine:
        answers = await asyncio.gather(*(collect(engine, request) for request in requests))
        assert (engine.metrics.num_accepted_tokens > 0) == speculative
    for request, outputs in zip(requests, answers, strict=True):
        whole, (tokens, logprobs, _, reason, _) = merged(outputs), expected.outputs[request.request_id]
        assert list(whole.tokens) == tokens
        assert list(whole.logprobs or ()) == logprobs
        assert whole.finish_reason == reason
        assert len(whole.accepted) == len(tokens)


async def test_requests_that_come_while_others_run_are_served_at_once(toy_model):
    async with started(toy_model) as engine, aclosing(engine.submit(endless())) as stream:
        await anext(stream)
        short = await collect(engine, toy_request("short", [1, 2], max_tokens=3, ignore_eos=True))
        assert len(merged(short).tokens) == 3
        assert "endless" in engine.engine.requests


async def test_an_idle_engine_rests_and_wakes(toy_model):
    async with started(toy_model) as engine:
        for name in "abc":
            assert merged(await collect(engine, toy_request(name, [1, 2]))).finish_reason
            await asyncio.sleep(0.02)
        steps = engine.metrics.num_steps
        await asyncio.sleep(0.05)
        assert engine.metrics.num_steps == steps


async def test_a_slow_reader_gets_merged_outputs_of_the_same_content(toy_model):
    request = toy_request("r", range(1, 20), max_tokens=60, ignore_eos=True, logprobs=1)
    expected = run(toy_model, [request]).outputs["r"]
    async with started(toy_model) as engine:
        outputs = []
        async with asyncio.timeout(SECONDS):
            async for output in engine.submit(request):
                outputs.append(output)
                await until(lambda: not engine.engine.has_work)
    assert len(outputs) < 10 < len(expected.steps)
    assert merged(outputs) == merged(expected.steps)


async def test_a_mailbox_merges_what_was_not_read():
    box = Mailbox()
    box.put(RequestOutput("r", (1,), cached_tokens=16, accepted=(True,), drafted_by=("x",)))
    box.put(RequestOutput("r", (2, 3), "stop", accepted=(False, False), drafted_by=("", ""), stop_string="x"))
    assert await box.take() == RequestOutput(
        "r",
        (1, 2, 3),
        "stop",
        cached_tokens=16,
        accepted=(True, False, False),
        drafted_by=("x", "", ""),
        stop_string="x",
    )
    box.put(RequestOutput("r", (4,)))
    assert (await box.take()).tokens == (4,)


@pytest.mark.parametrize("interval", [1, 4])
async def test_outputs_of_an_interval_come_together_behind_the_first(toy_model, interval):
    request = toy_request("r", range(1, 20), max_tokens=22, ignore_eos=True, logprobs=1)
    expected = run(toy_model, [request]).outputs["r"]
    async with started(toy_model, stream_interval=interval, prefix_cache=False) as engine, asyncio.timeout(SECONDS):
        for _ in range(10):  # on a busy machine the reader may be late, and takes what waits as one
            outputs = [output async for output in engine.submit(request)]
            assert merged(outputs) == merged(expected.steps)
            sizes = [len(output.tokens) for output in outputs]
            if sizes[0] == 1:
                break
    assert sizes[0] == 1
    if interval == 4:
        assert min(sizes[1:-1]) >= 4
        assert len(sizes) <= 7


async def test_an_answer_that_is_complete_survives_the_death_of_the_engine():
    box = Mailbox()
    box.put(RequestOutput("r", (1,), "stop"))
    box.put(EngineDeadError("gone"))
    assert (await box.take()).finish_reason == "stop"
    box.put(RequestOutput("r", (1,)))
    box.put(EngineDeadError("gone"))
    with pytest.raises(EngineDeadError):
        await box.take()


async def test_the_engine_tells_what_it_is(toy_model):
    async with started(toy_model, max_model_len=99) as engine:
        assert engine.model_name == str(toy_model)
        assert engine.max_model_len == 99
        assert engine.lossless
        assert engine.status == "ready"
        assert engine.describe()["verifier"] == "drafter-invariant"
        assert engine.observer_metrics() == []
