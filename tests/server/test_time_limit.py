"""`--request-timeout`: what a client gets, and what becomes of the engine's request."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from patience import LoopClock, until

from specserve.config import EngineConfig
from specserve.engine.async_engine import AsyncEngine
from specserve.errors import ConfigError
from specserve_server.config import ServerConfig
from specserve_server.errors import TimeLimitError
from specserve_server.generation.time_limit import time_limited
from specserve_workbench.testing.engines import DEFAULTS
from specserve_workbench.testing.requests import toy_request

if TYPE_CHECKING:
    from pathlib import Path

    from fake_engine import FakeEngine

LIMIT = 50.0
"""Seconds: more than a test takes, and less than what makes a client give up."""
TOO_LONG = {"code": "request_timeout", "type": "timeout_error", "param": None}


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> LoopClock:
    return LoopClock(monkeypatch)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("how", ["endless", "stuck"])
async def test_a_request_that_runs_too_long_is_a_504_and_aborted(
    connect: Any, engine: FakeEngine, clock: LoopClock, how: str, n: int
) -> None:
    engine.endless, engine.delay = (True, 0.0) if how == "endless" else (False, 1000.0)
    client = await connect(engine, request_timeout=LIMIT)
    asked = asyncio.create_task(client.post("/v1/completions", json={"prompt": "a", "n": n}))
    await until(lambda: len(engine.running) == n)
    clock.advance(LIMIT)
    response = await asked
    error = (await response.json())["error"]
    assert (response.status, response.headers["x-should-retry"]) == (504, "false")
    assert error.pop("message").startswith("the request ran longer than 50 s")
    assert error == TOO_LONG
    assert (len(engine.submitted), len(engine.aborted), engine.running) == (n, n, set())


async def test_in_a_stream_the_error_is_the_last_event(connect: Any, engine: FakeEngine, clock: LoopClock) -> None:
    engine.endless = True
    client = await connect(engine, request_timeout=LIMIT)
    for path, body in {
        "/v1/completions": {"prompt": "a"},
        "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}]},
    }.items():
        response = await client.post(path, json={**body, "stream": True})
        assert response.status == 200
        for _ in range(4):
            assert b"choices" in await response.content.readuntil(b"\n\n")
        clock.advance(LIMIT)
        *_, error, done = (await response.text()).removesuffix("\n\n").split("\n\n")
        assert json.loads(error.removeprefix("data: "))["error"]["code"] == "request_timeout"
        assert done == "data: [DONE]"
    assert engine.running == set()


async def test_a_stream_that_has_not_begun_has_the_status(connect: Any, engine: FakeEngine, clock: LoopClock) -> None:
    engine.delay = 1000.0
    client = await connect(engine, request_timeout=LIMIT)
    asked = asyncio.create_task(client.post("/v1/completions", json={"prompt": "a", "stream": True}))
    await until(lambda: engine.running)
    clock.advance(LIMIT)
    assert (await asked).status == 504


async def test_requests_that_are_quick_enough_are_whole(connect: Any, engine: FakeEngine) -> None:
    client = await connect(engine, request_timeout=LIMIT)
    response = await client.post("/v1/completions", json={"prompt": "a", "max_tokens": 99})
    assert (await response.json())["choices"][0]["text"] == engine.text
    assert engine.aborted == []


async def test_a_caller_that_waits_for_its_client_does_not_keep_the_request_alive(
    engine: FakeEngine, clock: LoopClock
) -> None:
    engine.endless = True
    async with aclosing(time_limited(engine, LIMIT).submit(toy_request("r", [1]))) as outputs:
        await anext(outputs)
        clock.advance(LIMIT)
        await until(lambda: engine.aborted == ["r"])
        with pytest.raises(TimeLimitError):
            await anext(outputs)


async def test_a_real_engine_has_its_blocks_back(toy_model: Path, clock: LoopClock) -> None:
    engine = await AsyncEngine.start(EngineConfig(model=str(toy_model), **DEFAULTS))
    pool = engine.engine.scheduler.pool
    request = toy_request("r", [1, 2], max_tokens=2000, ignore_eos=True)
    used = []

    async def read() -> None:
        async for _ in time_limited(engine, LIMIT).submit(request):
            used.append(pool.usage)
            clock.advance(LIMIT / 4)

    with pytest.raises(TimeLimitError):
        await read()
    assert len(used) == 4
    assert min(used) > 0
    await until(lambda: not engine.engine.has_work)
    assert pool.usage == 0
    await engine.stop()


async def test_an_answer_that_was_complete_in_time_is_no_error_when_it_is_read_late(
    engine: FakeEngine, clock: LoopClock
) -> None:
    texts = []
    async for output in time_limited(engine, LIMIT).submit(toy_request("r", [1], max_tokens=2)):
        texts.append(output.tokens)
        clock.advance(LIMIT)
        await asyncio.sleep(0.01)
    assert len(texts) == 1


async def test_routes_of_plugins_have_the_limit(connect: Any, engine: FakeEngine, clock: LoopClock) -> None:
    def add_routes(app: web.Application, engine: Any) -> None:
        async def generate(request: web.Request) -> web.Response:
            outputs = [output async for output in engine.submit(toy_request("r", [1]))]
            return web.json_response(len(outputs))

        app.router.add_post("/v1/generate", generate)
        assert engine.model_name == "fake-model"

    engine.endless = True
    engine.plugins.answers["add_routes"] = add_routes
    client = await connect(engine, request_timeout=LIMIT)
    asked = asyncio.create_task(client.post("/v1/generate"))
    await until(lambda: engine.running)
    clock.advance(LIMIT)
    assert (await asked).status == 504
    assert engine.aborted == ["r"]


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_a_limit_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigError, match="request_timeout must be a number of seconds above 0"):
        ServerConfig(request_timeout=seconds)
