"""/openapi.json describes every route, and the answers are as it says; /docs and /tokenizer_info."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from aiohttp import web
from fake_engine import FakeEngine
from jsonschema import Draft202012Validator, ValidationError
from openapi_checks import Described
from patience import LoopClock, until

from specserve.errors import QueueFullError
from specserve.text.tokenizer import HfTokenizer
from specserve_server.app.application import ROUTES
from specserve_server.app.middlewares.authentication import PUBLIC_PATHS
from specserve_server.openapi.core_operations import CORE_OPERATIONS
from specserve_server.operation import JSON, Answer, Operation, describe

if TYPE_CHECKING:
    from pathlib import Path

HELLO = [{"role": "user", "content": "hi"}]
TOOLS = [{"type": "function", "function": {"name": "count", "parameters": {"type": "object"}}}]
CLIENT_TOOLS = [{"name": "count", "input_schema": {"type": "object"}}]
CALL = 'Wait. <tool_call>{"name": "count", "arguments": {"to": 3}}</tool_call>'
EVERYTHING = {"return_token_ids": True, "return_speculation": True, "prompt_logprobs": 1, "n": 2}
COMPLETIONS, CHAT, RESPONSES, MESSAGES = "/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages"
KEY = {"x-api-key": "k"}


async def described(client: Any) -> Described:
    response = await client.get("/openapi.json", headers=KEY)
    assert response.status == 200
    return Described(await response.json())


def test_the_servers_own_routes_are_all_described() -> None:
    routes = {(re.sub(r":[^}]*}", "}", route.path), route.method.lower()) for route in ROUTES}
    assert {(path, method) for path, methods in CORE_OPERATIONS.items() for method in methods} == routes


async def test_schemas_are_valid_and_their_references_lead_somewhere(client: Any) -> None:
    document = (await described(client)).document
    schemas = document["components"]["schemas"]
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    names = set(re.findall(r'"#/components/schemas/([^"]+)"', msgspec.json.encode(document).decode()))
    assert names <= schemas.keys()
    ids = [one["operationId"] for methods in document["paths"].values() for one in methods.values()]
    assert len(set(ids)) == len(ids)


async def test_the_plain_routes_answer_as_described(client: Any) -> None:
    document = await described(client)
    for path in ("/health", "/ping", "/version", "/load", "/metrics", "/docs", "/openapi.json", "/tokenizer_info"):
        await document.check("get", path, await client.get(path))
    for path in ("/v1/models", "/v1/models/fake-model", "/v1/models/none", "/v1/plugins"):
        await document.check("get", path, await client.get(path))
    for path in ("/ping", "/reset_prefix_cache"):
        await document.check("post", path, await client.post(path))
    openmetrics = await client.get("/metrics", headers={"Accept": "application/openmetrics-text"})
    assert openmetrics.content_type == "application/openmetrics-text"
    await document.check("get", "/metrics", openmetrics)
    assert ("get", "/v1/models/{name}", 404) in document.checked


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (COMPLETIONS, {"prompt": "hi", **EVERYTHING, "logprobs": 2, "echo": True}),
        (COMPLETIONS, {"prompt": "hi"}),
        (CHAT, {"messages": HELLO, **EVERYTHING, "logprobs": True, "top_logprobs": 2}),
        (CHAT, {"messages": HELLO, "tools": TOOLS}),
        (RESPONSES, {"input": "hi"}),
        (RESPONSES, {"input": "hi", "max_output_tokens": 2, "metadata": {"a": "b"}}),
        (MESSAGES, {"messages": HELLO, "max_tokens": 9}),
        (MESSAGES, {"messages": HELLO, "max_tokens": 200, "tools": CLIENT_TOOLS, "stop_sequences": ["never"]}),
        ("/v1/messages/count_tokens", {"messages": HELLO}),
        ("/tokenize", {"prompt": "hi", "return_token_strs": True}),
        ("/tokenize", {"messages": HELLO}),
        ("/detokenize", {"tokens": [5, 6]}),
    ],
)
async def test_generating_routes_answer_as_described_whole_and_streamed(
    connect: Any, tool_engine: FakeEngine, path: str, body: dict[str, Any]
) -> None:
    tool_engine.text = CALL
    client = await connect(tool_engine)
    document = await described(client)
    is_generation = path in (COMPLETIONS, CHAT, RESPONSES, MESSAGES)
    for fields in ({}, {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}):
        response = await client.post(path, json=body | fields)
        assert response.status == 200
        assert (response.content_type == "text/event-stream") == bool(is_generation and fields)
        await document.check("post", path, response)
    request = document.document["paths"][path]["post"]["requestBody"]["content"][JSON]
    for valid in (body, request["example"]):
        schema = {**request["schema"], "components": document.document["components"]}
        Draft202012Validator(schema).validate(valid)


async def test_a_stored_response_is_described_until_it_is_deleted(client: Any) -> None:
    document = await described(client)
    path = f"{RESPONSES}/{(await (await client.post(RESPONSES, json={'input': 'hi'})).json())['id']}"
    await document.check("get", path, await client.get(path, params={"stream": "false"}))
    for query in ("stream=true", "stream=false&stream=false", "stream="):
        response = await client.get(f"{path}?{query}")
        assert (await document.check("get", path, response))["error"]["param"] == "stream"
    await document.check("delete", path, await client.delete(path))
    await document.check("get", path, await client.get(path))
    checked = {(method, status) for method, _, status in document.checked}
    assert checked == {("get", 200), ("get", 400), ("delete", 200), ("get", 404)}


@pytest.mark.direct
@pytest.mark.parametrize("path", [COMPLETIONS, CHAT, RESPONSES, MESSAGES])
async def test_errors_are_as_described(
    connect: Any, engine: FakeEngine, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await connect(engine, api_key="k", max_body_bytes=1000, request_timeout=50.0)
    document = await described(client)
    asked = {COMPLETIONS: {"prompt": "hi"}, RESPONSES: {"input": "hi"}}.get(path, {"messages": HELLO})
    good = {**asked, "max_output_tokens" if path == RESPONSES else "max_tokens": 2}

    async def answer(body: dict[str, Any], headers: dict[str, str] = KEY) -> int:
        response = await client.post(path, json=body, headers=headers)
        await document.check("post", path, response)
        return int(response.status)

    assert await answer(good, {}) == 401
    assert await answer({}) == 400
    assert await answer(good | {"model": "none"}) == 404
    assert await answer(good | {"user": "u" * 1000}) == 413
    engine.error_after = 0
    assert await answer(good) == 500
    engine.error_after, engine.endless = None, True
    clock, late = LoopClock(monkeypatch), asyncio.create_task(answer(good))
    await until(lambda: engine.running)
    clock.advance(50.0)
    assert await late == 504
    engine.check = refuse  # type: ignore[method-assign]
    assert await answer(good) == 429
    engine.status = "draining"
    assert await answer(good) == 503


def refuse(request: object) -> None:
    raise QueueFullError("too many requests wait.")


@pytest.mark.parametrize(
    ("schema", "wrong"),
    [
        ("CompletionBody", {}),
        ("CompletionBody", {"prompt": None}),
        ("CompletionBody", {"prompt": "a", "response_format": {"type": "xml"}}),
        ("CompletionBody", {"prompt": "a", "n": 0}),
        ("ChatBody", {}),
        ("ChatBody", {"messages": [{"content": "a"}]}),
        ("ChatBody", {"messages": HELLO, "tool_choice": "maybe"}),
        ("ResponsesBody", {"instructions": "a"}),
        ("MessagesBody", {"messages": HELLO}),
        ("CountTokensBody", {}),
        ("TokenizeBody", {}),
        ("TokenizeBody", {"prompt": "a", "messages": HELLO}),
        ("DetokenizeBody", {"tokens": None}),
        ("DetokenizeBody", {"tokens": [-1]}),
    ],
)
async def test_what_the_server_refuses_is_wrong_by_its_schema_too(client: Any, schema: str, wrong: Any) -> None:
    document = await described(client)
    for path, methods in document.document["paths"].items():
        body = methods.get("post", {}).get("requestBody")
        if body and body["content"][JSON]["schema"]["$ref"].endswith(f"/{schema}"):
            assert (await client.post(path, json=wrong)).status == 400
            break
    else:
        pytest.fail("a route takes it")
    with pytest.raises(ValidationError):
        document.validate({"$ref": f"#/components/schemas/{schema}"}, wrong)


async def test_keys_are_described_where_the_server_has_some(connect: Any, engine: FakeEngine) -> None:
    document = (await described(await connect(engine))).document
    assert not document["security"]
    assert "401" not in document["paths"]["/version"]["get"]["responses"]
    document = (await described(await connect(engine, api_key="k"))).document
    assert document["security"] == [{"bearer": []}, {"x-api-key": []}]
    assert document["components"]["securitySchemes"].keys() == {"bearer", "x-api-key"}
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert ("401" in operation["responses"]) == (path not in PUBLIC_PATHS)
            assert operation.get("security") == ([] if path in PUBLIC_PATHS else None)


class Greeting(msgspec.Struct):
    hello: str


class GreetingBody(msgspec.Struct):
    name: str | None = None


def add_routes(app: web.Application, engine: object) -> None:
    @describe(
        Operation(
            summary="Greet somebody",
            tag="greetings",
            body=GreetingBody,
            required=("name",),
            answers=(Answer(content={JSON: Greeting}, status=202),),
            errors=(409,),
        )
    )
    async def greet(request: web.Request) -> web.Response:
        return web.json_response({"hello": (await request.json())["name"]}, status=202)

    async def undescribed(request: web.Request) -> web.Response:
        """Says nothing.

        At length."""
        return web.Response()

    app.add_routes([web.post("/v1/hello/{place:[a-z]+}", greet), web.get("/v1/nothing", undescribed)])


async def test_routes_of_plugins_are_described(connect: Any, engine: FakeEngine) -> None:
    engine.plugins.answers["add_routes"] = add_routes
    client = await connect(engine)
    document = await described(client)
    greeting = document.document["paths"]["/v1/hello/{place}"]["post"]
    assert (greeting["summary"], greeting["tags"]) == ("Greet somebody", ["greetings"])
    assert [one["name"] for one in greeting["parameters"]] == ["place"]
    assert greeting["responses"].keys() == {"202", "400", "409", "413", "429", "500", "503"}
    assert document.document["components"]["schemas"]["GreetingBody"]["required"] == ["name"]
    await document.check("post", "/v1/hello/here", await client.post("/v1/hello/here", json={"name": "you"}))
    nothing = document.document["paths"]["/v1/nothing"]
    assert nothing.keys() == {"get"}
    assert nothing["get"]["summary"] == "Says nothing."
    assert nothing["get"]["responses"]["default"]["description"] == "Not described"


async def test_the_page_reads_nothing_but_the_document(connect: Any, engine: FakeEngine) -> None:
    client = await connect(engine, api_key="k", root_path="/llm")
    for path in ("/docs", "/llm/docs"):
        response = await client.get(path)
        assert (response.status, response.content_type) == (200, "text/html")
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]
    page = await response.text()
    assert re.findall(r"fetch\(([^,)]*)", page) == ['"openapi.json"']
    assert not re.findall(r"(?:src=|https?:|@import|url\(|<link)", page)


async def test_the_tokenizer_is_told(connect: Any, tmp_path: Path) -> None:
    from tiny_tokenizer import write_model_dir

    write_model_dir(tmp_path)
    settings = {
        "tokenizer_class": "LlamaTokenizer",
        "eos_token": {"content": "<|eos|>"},
        "bos_token": None,
        "chat_template": "{{ messages[0].content }}",
        "auth_token": "secret",
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    client = await connect(FakeEngine(HfTokenizer.from_dir(tmp_path)))
    assert await (await client.get("/tokenizer_info")).json() == {
        "tokenizer_class": "LlamaTokenizer",
        "special_tokens": {"eos_token": "<|eos|>"},
        "chat_template": "{{ messages[0].content }}",
    }
