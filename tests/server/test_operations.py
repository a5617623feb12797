"""What probes, load balancers and operators call: /ping, /load, /reset_prefix_cache."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from specserve.errors import EngineDeadError

if TYPE_CHECKING:
    from fake_engine import FakeEngine

KEY = {"Authorization": "Bearer k"}


@pytest.mark.direct
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD"])
async def test_ping_says_what_health_says(connect: Any, engine: FakeEngine, method: str) -> None:
    client = await connect(engine, api_key="k")
    assert (await client.request(method, "/ping")).status == 200
    engine.status = "draining"
    assert (await client.request(method, "/ping")).status == 503


async def test_ping_says_that_the_engine_loads(connect: Any, engine: FakeEngine) -> None:
    go = asyncio.Event()

    async def start() -> FakeEngine:
        await go.wait()
        return engine

    client = await connect(start)
    response = await client.post("/ping")
    assert (response.status, (await response.json())["status"]) == (503, "loading")
    for method, path in (("GET", "/load"), ("POST", "/reset_prefix_cache")):
        assert (await client.request(method, path)).status == 503
    go.set()


async def test_the_load_is_the_number_of_requests_that_run_or_wait(client: Any, engine: FakeEngine) -> None:
    assert await load(client) == 0
    engine.endless = True
    request = asyncio.create_task(client.post("/v1/completions", json={"prompt": "a", "n": 3, "stream": True}))
    while len(engine.running) < 3:
        await asyncio.sleep(0.001)
    assert await load(client) == 3
    (await request).close()
    while engine.running:
        await asyncio.sleep(0.001)
    assert await load(client) == 0


async def load(client: Any) -> int:
    response = await client.get("/load")
    assert response.status == 200
    body = await response.json()
    assert body.keys() == {"server_load"}
    return int(body["server_load"])


async def test_the_prefix_cache_is_reset(client: Any, engine: FakeEngine) -> None:
    for body in (None, b"", b"{}", b"no json"):
        response = await client.post("/reset_prefix_cache", data=body)
        assert (response.status, await response.json()) == (200, {"success": True})
    assert engine.num_resets == 4


@pytest.mark.direct
async def test_a_reset_that_no_engine_can_do_is_an_error(client: Any, engine: FakeEngine) -> None:
    engine.status = "dead"
    response = await client.post("/reset_prefix_cache")
    assert (response.status, (await response.json())["error"]["code"]) == (503, "engine_dead")
    engine.status = "draining"
    assert (await client.post("/reset_prefix_cache")).status == 503
    assert engine.num_resets == 0


async def test_an_engine_that_dies_meanwhile_is_reported(
    client: Any, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(engine: FakeEngine) -> None:
        raise EngineDeadError("the engine died: boom")

    monkeypatch.setattr(type(engine), "reset_prefix_cache", die)
    response = await client.post("/reset_prefix_cache")
    assert (response.status, (await response.json())["error"]["code"]) == (503, "engine_dead")


@pytest.mark.parametrize(("method", "path"), [("GET", "/load"), ("POST", "/reset_prefix_cache"), ("GET", "/metrics")])
async def test_the_other_routes_need_the_key(connect: Any, engine: FakeEngine, method: str, path: str) -> None:
    client = await connect(engine, api_key="k")
    assert (await client.request(method, path)).status == 401
    assert (await client.request(method, path, headers={"Authorization": "Bearer K"})).status == 401
    assert engine.num_resets == 0
    assert (await client.request(method, path, headers=KEY)).status == 200


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/load", "GET,HEAD"),
        ("GET", "/reset_prefix_cache", "POST"),
        ("DELETE", "/ping", "GET,HEAD,POST"),
    ],
)
async def test_other_methods_are_refused(client: Any, method: str, path: str, allowed: str) -> None:
    response = await client.request(method, path)
    assert (response.status, response.headers["Allow"]) == (405, allowed)
