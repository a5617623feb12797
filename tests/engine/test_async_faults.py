"""The engine for asyncio: what fails ends one request, or every one, and says why."""

from __future__ import annotations

import asyncio

import pytest
from running_engine import SECONDS, collect, endless, free_again, merged, started, until

from specserve.config import EngineConfig
from specserve.engine.async_engine import AsyncEngine
from specserve.errors import ConfigError, EngineDeadError
from specserve_workbench.testing.engines import DEFAULTS, run
from specserve_workbench.testing.requests import toy_request


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
