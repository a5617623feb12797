"""The counter of answers: which route, which method, which status; and that no client can add series by asking."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web
from metric_texts import scrape

from specserve.errors import QueueFullError

if TYPE_CHECKING:
    import pytest
    from fake_engine import FakeEngine

NAME = "specserve_http_responses_total"
KEY = {"Authorization": "Bearer k"}


async def answers(client: Any, **labels: str) -> float:
    return (await scrape(client)).value(NAME, **labels)


async def test_answers_are_counted_by_route_method_and_status(client: Any, engine: FakeEngine) -> None:
    for _ in range(2):
        await client.post("/v1/completions", json={"prompt": "a"})
    await client.post("/v1/completions", json={"prompt": 3.5})
    await client.get("/v1/completions")
    await client.get("/v1/models/nothing")
    assert await answers(client, route="/v1/completions", method="POST", status="200") == 2
    assert await answers(client, route="/v1/completions", status="400") == 1
    assert await answers(client, method="GET", route="unknown", status="405") == 1
    assert await answers(client, route="/v1/models/{name}", status="404") == 1
    assert await answers(client, route="/metrics", status="200", model_name="fake-model") == 4


async def test_what_the_server_refuses_is_counted(
    connect: Any, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await connect(engine, api_key="k", max_requests_per_minute=2)
    client.session.headers.update(KEY)

    def full(request: object) -> None:
        raise QueueFullError("too many requests wait.", retry_after=7)

    monkeypatch.setattr(engine, "check", full)
    await client.post("/v1/completions", json={"prompt": "a"})

    def broken(request: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(engine, "check", broken)
    await client.post("/v1/completions", json={"prompt": "a"})
    await client.post("/v1/chat/completions", json={})
    async with aiohttp.ClientSession(client.make_url("/")) as stranger:
        await stranger.post("/v1/messages", json={})
    assert await answers(client, route="/v1/completions", status="429") == 1
    assert await answers(client, route="/v1/completions", status="500") == 1
    assert await answers(client, route="/v1/chat/completions", status="429") == 1
    assert await answers(client, route="/v1/messages", status="401") == 1


async def test_unknown_paths_and_methods_are_one_series(client: Any) -> None:
    for number in range(5):
        await client.get(f"/nowhere/{number}")
    for method in ("PROPFIND", "MKCOL", "REPORT", "LOCK", "NOTIFY"):
        await client.request(method, "/health")
    assert await answers(client, route="unknown", method="GET", status="404") == 5
    assert await answers(client, method="OTHER", status="405") == 5
    found = [sample for sample in (await scrape(client)).samples() if sample.name == NAME]
    assert len(found) == 3


async def test_routes_of_plugins_are_counted_by_their_pattern_under_a_prefix_too(
    connect: Any, engine: FakeEngine
) -> None:
    async def greet(request: web.Request) -> web.Response:
        return web.Response(text=request.match_info["name"])

    engine.plugins.answers["add_routes"] = lambda app, engine: app.router.add_get("/v1/greetings/{name}", greet)
    client = await connect(engine, root_path="/llm")
    for path in ("/v1/greetings/a", "/llm/v1/greetings/b", "/llm/v1/nothing"):
        await client.get(path)
    await client.get("/llm/v1/models")
    assert await answers(client, route="/v1/greetings/{name}", status="200") == 2
    assert await answers(client, route="unknown", status="404") == 1
    assert await answers(client, route="/v1/models", status="200") == 1


async def test_a_client_that_leaves_is_499(client: Any, engine: FakeEngine) -> None:
    engine.endless = True
    (await client.post("/v1/completions", json={"prompt": "a", "stream": True})).close()
    while engine.running:
        await client.get("/health")
    assert await answers(client, route="/v1/completions", status="499") == 1
