"""The engine for asyncio: the same outputs, aborts that free blocks, slow readers, deaths, and ends."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import aclosing, asynccontextmanager

import pytest

from specserve.config import EngineConfig
from specserve.engine.async_engine import AsyncEngine, Mailbox
from specserve.errors import ConfigError, EngineDeadError, QueueFullError, RequestError
from specserve.testing.drafters import OracleDrafter
from specserve.testing.engines import DEFAULTS, drafter_plugin, run
from specserve.testing.requests import toy_request, varied_requests
from specserve.types import RequestOutput

SECONDS = 20.0


@asynccontextmanager
async def started(model, *, extra=None, **options):
    """A running engine, stopped at the end and then found with its books in order."""
    engine = await AsyncEngine.start(EngineConfig(model=str(model), **(DEFAULTS | options)), extra=extra)
    try:
        yield engine
    finally:
        await asyncio.wait_for(engine.stop(), SECONDS)
    assert not engine.thread.is_alive()
    if engine.status != "dead":
        engine.engine.check_integrity()


def with_oracle(outputs, width=4):
    """Options that enable an oracle and leave what is verified to the cost planner."""
    return {"extra": {"drafter": drafter_plugin(lambda: OracleDrafter(outputs, width))}, "plugins": ("drafter",)}


def endless(name="endless"):
    return toy_request(name, range(1, 20), max_tokens=1500, ignore_eos=True)


async def collect(engine, request):
    async with asyncio.timeout(SECONDS):
        return [output async for output in engine.submit(request)]


def merged(outputs):
    whole = outputs[0]
    for output in outputs[1:]:
        whole = whole.merge(output)
    return whole


async def until(condition):
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.002)


def free_again(engine):
    pool = engine.engine.scheduler.pool
    return not engine.engine.requests and pool.num_available == pool.num_blocks


# --- the same answers -----------------------------------------------------------------------------------


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
    expected = run(toy_model, requests)
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


# --- slow readers ---------------------------------------------------------------------------------------


async def test_a_slow_reader_gets_merged_deltas_of_the_same_content(toy_model):
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
    box.put(RequestOutput("r", (1,), cached_tokens=16, accepted=(True,)))
    box.put(RequestOutput("r", (2, 3), "stop", accepted=(False, False), stop_string="x"))
    assert await box.take() == RequestOutput(
        "r", (1, 2, 3), "stop", cached_tokens=16, accepted=(True, False, False), stop_string="x"
    )
    box.put(RequestOutput("r", (4,)))
    assert (await box.take()).tokens == (4,)


async def test_an_answer_that_is_complete_survives_the_death_of_the_engine():
    box = Mailbox()
    box.put(RequestOutput("r", (1,), "stop"))
    box.put(EngineDeadError("gone"))
    assert (await box.take()).finish_reason == "stop"
    box.put(RequestOutput("r", (1,)))
    box.put(EngineDeadError("gone"))
    with pytest.raises(EngineDeadError):
        await box.take()


# --- aborts and refusals --------------------------------------------------------------------------------


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


# --- faults ---------------------------------------------------------------------------------------------


async def test_a_request_that_cannot_be_started_ends_alone(toy_model, monkeypatch, caplog):
    broken = toy_request("broken", [1, 2], stop=("x",))
    neighbour = toy_request("neighbour", range(1, 20), max_tokens=30, ignore_eos=True)

    def refuse(*args, **kwargs):
        raise ValueError("no stream today")

    async with started(toy_model) as engine:
        monkeypatch.setattr(type(engine.tokenizer), "stream", refuse)
        failed, fine = await asyncio.gather(collect(engine, broken), collect(engine, neighbour))
        assert engine.status == "ready"
        await until(lambda: free_again(engine))
    assert (merged(failed).finish_reason, merged(failed).tokens) == ("error", ())
    assert merged(failed).error == "the text stream for its stop strings raised ValueError: no stream today"
    assert list(merged(fine).tokens) == run(toy_model, [neighbour]).tokens()["neighbour"]
    assert "request broken ends, the others go on" in caplog.text


async def test_a_forward_pass_that_always_raises_ends_every_request_and_not_the_engine(toy_model, caplog):
    async with started(toy_model) as engine:
        readers = [asyncio.create_task(collect(engine, endless(str(i)))) for i in range(5)]
        await until(lambda: engine.metrics.generation_tokens > 20)
        forward, engine.engine.runner.forward = engine.engine.runner.forward, lambda batch: 1 / 0
        for outputs in await asyncio.gather(*readers):
            assert merged(outputs).finish_reason == "error"
            assert "the step that computes it raised ZeroDivisionError" in merged(outputs).error
        assert engine.status == "ready"
        engine.engine.runner.forward = forward
        assert merged(await collect(engine, toy_request("later", [1]))).finish_reason in ("stop", "length")
    assert caplog.text.count("Traceback") == 1


async def test_a_step_that_fails_with_no_request_in_it_ends_the_engine_and_says_why(toy_model, caplog):
    async with started(toy_model) as engine:
        failed = asyncio.create_task(engine.failed())
        readers = [asyncio.create_task(collect(engine, endless(str(i)))) for i in range(5)]
        await until(lambda: engine.metrics.generation_tokens > 20)
        assert not failed.done()
        engine.engine.scheduler.schedule = lambda: 1 / 0
        for answer in await asyncio.gather(*readers, return_exceptions=True):
            assert isinstance(answer, EngineDeadError)
            assert "ZeroDivisionError" in str(answer)
            assert isinstance(answer.__cause__, ZeroDivisionError)
        assert engine.status == "dead"
        assert isinstance(await asyncio.wait_for(failed, SECONDS), ZeroDivisionError)
        assert isinstance(await asyncio.wait_for(engine.failed(), SECONDS), ZeroDivisionError)
        with pytest.raises(EngineDeadError, match="restart"):
            await collect(engine, toy_request("late", [1]))
    assert "the step loop died" in caplog.text


async def test_an_engine_that_cannot_start_says_so(tmp_path):
    with pytest.raises(ConfigError, match=str(tmp_path)):
        await AsyncEngine.start(EngineConfig(model=str(tmp_path / "nothing"), **DEFAULTS))


# --- stopping -------------------------------------------------------------------------------------------


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


async def test_the_engine_tells_what_it_is(toy_model):
    async with started(toy_model, max_model_len=99) as engine:
        assert engine.model_name == str(toy_model)
        assert (engine.max_model_len, engine.vocab_size) == (99, 320)
        assert engine.lossless
        assert engine.status == "ready"
        assert engine.describe()["verifier"] == "drafter-invariant"
        assert engine.observer_metrics() == []
