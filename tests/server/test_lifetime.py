"""Loading, readiness, draining, the engine's death: status of /health and exit code."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from patience import PATIENCE, until
from serve_task import Server, interrupt, starter

from specserve.errors import ConfigError, EngineDeadError, ModelError
from specserve_server.app.run import serve
from specserve_server.config import ServerConfig

if TYPE_CHECKING:
    from fake_engine import FakeEngine


async def status_of(url: str) -> int:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/health") as response:
        return response.status


async def complete(url: str, **body: Any) -> tuple[int, Any]:
    path = f"{url}/v1/completions"
    async with aiohttp.ClientSession() as session, session.post(path, json={"prompt": "a", **body}) as response:
        return response.status, await response.json()


async def test_a_server_that_is_loading_answers_503(connect: Any, engine: FakeEngine) -> None:
    go = asyncio.Event()

    async def start() -> FakeEngine:
        await go.wait()
        return engine

    client = await connect(start)
    assert (await client.get("/health")).status == 503
    response = await client.post("/v1/completions", json={"prompt": "a"})
    assert (response.status, response.headers["Retry-After"]) == (503, "1")
    assert (await client.get("/v1/nowhere")).status == 503
    go.set()
    async with asyncio.timeout(PATIENCE):
        while (await client.get("/health")).status != 200:
            await asyncio.sleep(0.005)


@pytest.mark.direct
@pytest.mark.parametrize("status", ["draining", "dead"])
async def test_an_engine_that_does_not_serve_is_503(client: Any, engine: FakeEngine, status: str) -> None:
    engine.status = status
    assert await (await client.get("/health")).json() == {"status": status}
    response = await client.post("/v1/completions", json={"prompt": "a"})
    assert response.status == 503
    assert (await client.get("/metrics")).status == 200


async def test_a_signal_ends_an_idle_server(engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    server = Server(engine, capsys)
    assert await status_of(await server.url()) == 200
    interrupt()
    assert await server.task == 0
    assert engine.stopped[0] == 30.0


async def test_a_running_request_is_drained(engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    engine.delay = 0.05
    server = Server(engine, capsys)
    url = await server.url()
    request = asyncio.create_task(complete(url))
    while not engine.running:
        await asyncio.sleep(0.005)
    interrupt()
    await until(lambda: engine.stopped)
    assert await status_of(url) == 503
    assert (await complete(url))[0] == 503
    assert (await request)[0] == 200
    assert await server.task == 0
    assert engine.aborted == []


async def test_a_second_signal_aborts_running_requests(
    engine: FakeEngine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specserve_server.app.http_runner.SHUTDOWN_TIMEOUT", 0.1)
    engine.endless = True
    server = Server(engine, capsys)
    request = asyncio.create_task(complete(await server.url()))
    while not engine.running:
        await asyncio.sleep(0.005)
    interrupt()
    await until(lambda: engine.stopped)
    assert not server.task.done()
    interrupt()
    assert await server.task == 0
    assert len(engine.aborted) == 1
    with pytest.raises(aiohttp.ClientError):
        await request


async def test_requests_are_served_in_the_drain_wait_while_health_is_503(
    engine: FakeEngine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = asyncio.Event()

    async def wait(seconds: float) -> None:
        assert seconds == 7
        await waited.wait()

    server = Server(engine, capsys, drain_wait=7)
    url = await server.url()
    monkeypatch.setattr("specserve_server.app.run.wait", wait)
    interrupt()
    while await status_of(url) != 503:
        await asyncio.sleep(0.005)
    assert (await complete(url))[0] == 200
    assert engine.stopped == []
    waited.set()
    assert await server.task == 0
    assert engine.stopped[0] == 30.0


async def test_a_second_signal_ends_the_drain_wait(engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    server = Server(engine, capsys, drain_wait=1000)
    await server.url()
    interrupt()
    await until(lambda: "requests are served for 1000 s more" in capsys.readouterr().err)
    assert not server.task.done()
    interrupt()
    assert await server.task == 0
    assert engine.stopped[-1] == 0.0


async def test_the_engines_death_in_the_drain_wait_ends_it(
    engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server(engine, capsys, drain_wait=1000)
    await server.url()
    interrupt()
    await until(lambda: "requests are served for 1000 s more" in capsys.readouterr().err)
    engine.death.set()
    assert await server.task == 1


async def test_the_engines_death_gives_exit_code_1(engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    server = Server(engine, capsys)
    await server.url()
    engine.death.set()
    assert await server.task == 1
    assert "boom" in capsys.readouterr().err


async def test_an_engine_that_does_not_load_is_an_error() -> None:
    async def start() -> Any:
        raise ModelError("no such model.")

    with pytest.raises(ModelError, match="no such model"):
        await serve(start, ServerConfig(port=0))


async def test_a_port_that_is_taken_is_an_error(engine: FakeEngine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match="cannot listen"):
        await serve(starter(engine), ServerConfig(port=taken.getsockname()[1]))


async def test_a_signal_while_loading_ends_the_server(engine: FakeEngine) -> None:
    async def start() -> FakeEngine:
        asyncio.get_running_loop().call_later(0.02, interrupt)
        await asyncio.Event().wait()
        return engine

    async with asyncio.timeout(PATIENCE):
        assert await serve(start, ServerConfig(port=0)) == 0


async def test_the_engines_death_reaches_running_requests(
    engine: FakeEngine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dying(request: object) -> Any:
        engine.death.set()
        await asyncio.sleep(0.05)
        if engine.death.is_set():
            raise EngineDeadError("the engine died: boom")
        yield

    monkeypatch.setattr(engine, "submit", dying)
    server = Server(engine, capsys)
    status, body = await complete(await server.url())
    assert (status, body["error"]["code"]) == (503, "engine_dead")
    assert await server.task == 1
