"""Limits per minute and of requests that run at once, for keys and for addresses."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from patience import PATIENCE

from specserve.errors import ConfigError
from specserve_server.config import ServerConfig
from specserve_server.errors import RateLimitError
from specserve_server.state import rate_limits
from specserve_server.state.rate_limits import RateLimits

if TYPE_CHECKING:
    from pathlib import Path

    from fake_engine import FakeEngine

PATH = "/v1/completions"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def ask(limits: RateLimits, client: str = "a") -> int:
    """Seconds until the next request is allowed; 0 where this one is."""
    try:
        with limits.admitted(client):
            return 0
    except RateLimitError as error:
        return error.retry_after


def test_a_minutes_requests_may_come_at_once_and_then_evenly() -> None:
    clock = Clock()
    limits = RateLimits(4, None, clock)
    assert [ask(limits) for _ in range(6)] == [0, 0, 0, 0, 15, 15]
    clock.now = 14.0
    assert [ask(limits), ask(limits, "b")] == [1, 0]
    clock.now = 15.0
    assert [ask(limits), ask(limits)] == [0, 15]
    clock.now = 1000.0
    assert [ask(limits) for _ in range(5)] == [0, 0, 0, 0, 15]


def test_clients_that_are_quiet_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limits, "MAX_BUCKETS", 3)
    clock = Clock()
    limits = RateLimits(2, None, clock)
    for client in "abc":
        assert ask(limits, client) == 0
    clock.now = 29.0
    assert ask(limits, "d") == 0
    assert len(limits._buckets) == 4
    clock.now = 31.0
    assert ask(limits, "e") == 0
    assert list(limits._buckets) == ["d", "e"]


def test_what_runs_at_once_is_counted_until_it_ends_also_by_an_error() -> None:
    limits = RateLimits(None, 2)
    with ExitStack() as running:
        running.enter_context(limits.admitted("a"))
        running.enter_context(limits.admitted("a"))
        assert [ask(limits), ask(limits, "b")] == [1, 0]
    with pytest.raises(ZeroDivisionError), limits.admitted("a"):
        raise ZeroDivisionError
    assert ask(limits) == 0
    assert not limits._running


def add_routes(app: web.Application, engine: object) -> None:
    async def work(request: web.Request) -> web.Response:
        return web.json_response({})

    app.router.add_post("/v1/work", work)


async def test_a_client_beyond_its_minute_gets_429_with_retry_after(connect: Any, engine: FakeEngine) -> None:
    engine.plugins.answers["add_routes"] = add_routes
    client = await connect(engine, max_requests_per_minute=3)
    statuses = [(await client.post(path, json={"prompt": "a"})).status for path in (PATH, "/v1/work", "/tokenize")]
    assert statuses == [200, 200, 200]
    for path in (PATH, "/v1/work"):
        response = await client.post(path, json={"prompt": "a"})
        assert (response.status, response.headers["Retry-After"]) == (429, "20")
        error = (await response.json())["error"]
        assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
    for path in ("/v1/models", "/metrics", "/health"):
        assert (await client.get(path)).status == 200


async def test_keys_of_one_name_share_a_limit_and_others_do_not(
    connect: Any, engine: FakeEngine, tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    file.write_text("team one\nteam two\nthree\n")
    client = await connect(engine, api_key_file=str(file), max_requests_per_minute=2)

    async def status(key: str) -> int:
        response: Any = await client.post(PATH, json={"prompt": "a"}, headers={"x-api-key": key})
        return int(response.status)

    assert [await status(key) for key in ("one", "two", "one", "wrong", "three")] == [200, 200, 429, 401, 200]


async def test_a_running_stream_counts_until_it_ends(connect: Any, engine: FakeEngine) -> None:
    engine.endless = True
    client = await connect(engine, max_concurrent_requests_per_key=1)
    stream = await client.post(PATH, json={"prompt": "a", "stream": True})
    response = await client.post(PATH, json={"prompt": "a"})
    assert (response.status, response.headers["Retry-After"]) == (429, "1")
    stream.close()
    async with asyncio.timeout(PATIENCE):
        while engine.running:
            await asyncio.sleep(0.005)
    engine.endless = False
    assert (await client.post(PATH, json={"prompt": "a"})).status == 200


@pytest.mark.parametrize("name", ["max_requests_per_minute", "max_concurrent_requests_per_key"])
def test_a_limit_that_is_none_is_refused(name: str) -> None:
    options: dict[str, Any] = {name: 0}
    with pytest.raises(ConfigError, match=f"{name} must be at least 1; got 0"):
        ServerConfig(**options)
