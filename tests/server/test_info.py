"""Models, plugins and their routes, tokenization."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from specserve.protocols import ResolvedModel
from specserve_server.engines.in_process import in_process_client
from specserve_server.state.model_lookup import pinned_model

if TYPE_CHECKING:
    from fake_engine import FakeEngine


async def get(client: Any, path: str) -> Any:
    response = await client.get(path)
    assert response.status == 200, await response.text()
    return await response.json()


async def test_models_have_adapters_with_their_parent(connect: Any, engine: FakeEngine) -> None:
    engine.plugins.answers["list_models"] = [ResolvedModel("sql", None, "sql@1")]
    client = await connect(engine, served_model_name="public")
    base, adapter = (await get(client, "/v1/models"))["data"]
    assert (base["id"], base["root"], base["parent"]) == ("public", "fake-model", None)
    assert (adapter["id"], adapter["parent"], adapter["max_model_len"]) == ("sql", "public", engine.max_model_len)


async def test_each_name_of_the_model_is_served_and_the_first_is_in_metrics(connect: Any, engine: FakeEngine) -> None:
    sql = ResolvedModel("sql", None, "sql@1")
    engine.plugins.answers |= {"list_models": [sql], "resolve_model": lambda name: sql if name == "sql" else None}
    client = await connect(engine, served_model_name=("qwen:7b", "gpt-4", "qwen:7b"))
    cards = (await get(client, "/v1/models"))["data"]
    assert [(card["id"], card["parent"]) for card in cards] == [("qwen:7b", None), ("gpt-4", None), ("sql", "qwen:7b")]
    assert (await get(client, "/v1/models/gpt-4"))["root"] == "fake-model"
    for asked, answered in {
        None: "qwen:7b",
        "qwen:7b": "qwen:7b",
        "gpt-4": "gpt-4",
        "fake-model": "qwen:7b",
        "gpt-4:sql": "sql",
        "qwen:7b:sql": "sql",
    }.items():
        response = await client.post("/v1/completions", json={"model": asked, "prompt": "a"})
        assert (await response.json())["model"] == answered
    for unknown in ("qwen", "gpt-4:no", "gpt-4:"):
        assert (await client.post("/v1/completions", json={"model": unknown, "prompt": "a"})).status == 404
    assert 'model_name="qwen:7b"' in await (await client.get("/metrics")).text()


async def test_an_adapter_is_pinned_until_the_request_ends(client: Any, engine: FakeEngine) -> None:
    released: list[str] = []

    def resolve(name: str) -> ResolvedModel | None:
        return ResolvedModel("sql", "fake-model", "sql@1", lambda: released.append(name)) if name == "sql" else None

    engine.plugins.answers["resolve_model"] = resolve
    for model in ("sql", "fake-model:sql"):
        response = await client.post("/v1/completions", json={"model": model, "prompt": "a", "cache_salt": "s"})
        assert (await response.json())["model"] == "sql"
    assert {(request.adapter, request.cache_salt) for request in engine.submitted} == {("sql@1", "s")}
    await client.post("/v1/completions", json={"model": "sql", "prompt": "a", "n": 0})
    await client.post("/v1/completions", json={"model": "sql", "prompt": [1] * 999})
    async with asyncio.timeout(10):
        while len(released) < 3:
            await asyncio.sleep(0.001)
    assert released == ["sql"] * 3
    assert (await client.post("/v1/completions", json={"model": "fake-model:no", "prompt": "a"})).status == 404


async def test_a_client_that_leaves_while_its_model_is_found_leaves_no_pin(engine: FakeEngine) -> None:
    asked, go, released = threading.Event(), threading.Event(), threading.Event()

    def resolve(name: str) -> ResolvedModel:
        asked.set()
        assert go.wait(10)
        return ResolvedModel(name, None, "slow@1", released.set)

    engine.plugins.answers["resolve_model"] = resolve

    async def wait_for_model() -> None:
        async with pinned_model(in_process_client(engine), "slow", ("base",)):
            pytest.fail("the client has left")

    client = asyncio.create_task(wait_for_model())
    await asyncio.to_thread(asked.wait, 10)
    client.cancel()
    with pytest.raises(asyncio.CancelledError):
        await client
    assert not released.is_set()
    go.set()
    assert await asyncio.to_thread(released.wait, 10)


async def test_a_plugins_routes_are_served_under_the_same_rules(connect: Any, engine: FakeEngine) -> None:
    async def hello(request: web.Request) -> web.Response:
        return web.json_response({"hello": request.match_info["name"]})

    def add_routes(app: web.Application, engine: object) -> None:
        app.router.add_get("/v1/hello/{name}", hello)

    engine.plugins.answers["add_routes"] = add_routes
    client = await connect(engine, api_key="k")
    assert (await client.get("/v1/hello/you")).status == 401
    key = {"Authorization": "Bearer k"}
    response = await client.get("/v1/hello/you", headers=key)
    assert await response.json() == {"hello": "you"}
    response = await client.post("/v1/hello/you", headers=key)
    assert (response.status, response.headers["Allow"]) == (405, "GET,HEAD")
    assert (await client.get("/v1/other", headers=key)).status == 404


async def test_plugins_and_configuration_are_shown(client: Any) -> None:
    body = await get(client, "/v1/plugins")
    assert body["data"][0]["name"] == "fake"
    assert body["engine"]["lossless"] is True


async def test_text_is_tokenized_and_detokenized(client: Any, engine: FakeEngine) -> None:
    response = await client.post("/tokenize", json={"prompt": "naïve 漢", "return_token_strs": True})
    body = await response.json()
    assert body["tokens"] == engine.tokenizer.encode("naïve 漢")
    assert (body["count"], body["max_model_len"]) == (len(body["tokens"]), engine.max_model_len)
    assert len(body["token_strs"]) == body["count"]
    response = await client.post("/detokenize", json={"tokens": body["tokens"]})
    assert await response.json() == {"prompt": "naïve 漢"}
    response = await client.post("/tokenize", json={"messages": [{"role": "user", "content": "a"}]})
    assert (await response.json())["tokens"] == engine.tokenizer.encode("user: a\n")


async def test_each_token_of_a_long_text_is_decoded_once_and_off_the_event_loop(
    client: Any, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    named: list[tuple[int, threading.Thread]] = []

    def name(tokenizer: object, token_id: int, *, first: bool = False) -> str:
        named.append((token_id, threading.current_thread()))
        return str(token_id)

    monkeypatch.setattr(type(engine.tokenizer), "token_text", name)
    response = await client.post("/tokenize", json={"prompt": "aé" * 1000, "return_token_strs": True})
    body = await response.json()
    assert body["token_strs"] == [str(id) for id in body["tokens"]]
    assert len(named) == 1 + len(set(body["tokens"][1:])) < body["count"]  # a text's first token has a name of its own
    assert threading.current_thread() not in {thread for _, thread in named}


async def test_version_and_health_are_served(client: Any) -> None:
    assert (await get(client, "/version"))["version"]
    assert await get(client, "/health") == {"status": "ready"}


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/audio/speech", "/nowhere"])
async def test_an_unknown_route_is_404_that_says_where_the_routes_are_listed(client: Any, path: str) -> None:
    response = await client.post(path, json={})
    assert response.status == 404
    assert "/openapi.json lists all routes" in (await response.json())["error"]["message"]
