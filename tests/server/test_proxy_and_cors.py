"""Paths with a proxy's prefix, and pages of other origins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from specserve.errors import ConfigError
from specserve_server.config import ServerConfig

if TYPE_CHECKING:
    from fake_engine import FakeEngine

KEY = {"x-api-key": "k"}
PAGE = "https://chat.example"


def add_routes(app: web.Application, engine: object) -> None:
    async def hello(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(f"{request.match_info['name']} {request.query_string}".encode())
        return response

    app.router.add_get("/v1/hello/{name}", hello)


@pytest.fixture
def engine_with_routes(engine: FakeEngine) -> FakeEngine:
    engine.plugins.answers["add_routes"] = add_routes
    return engine


@pytest.mark.parametrize("prefix", ["", "/llm/a"])
async def test_every_route_is_served_with_and_without_the_prefix(
    connect: Any, engine_with_routes: FakeEngine, prefix: str
) -> None:
    client = await connect(engine_with_routes, root_path="/llm/a", api_key="k")
    assert (await client.get(prefix + "/health")).status == 200
    assert (await client.get(prefix + "/v1/models")).status == 401
    assert (await client.get(prefix + "/v1/models/fake-model", headers=KEY)).status == 200
    assert (await client.post(prefix + "/v1/completions", json={"prompt": "a"}, headers=KEY)).status == 200
    hello = await client.get(prefix + "/v1/hello/a%2Fb?c=d", headers=KEY)
    assert await hello.text() == "a/b c=d"
    document = await (await client.get(prefix + "/openapi.json", headers=KEY)).json()
    assert document["servers"] == [{"url": "/llm/a"}]


@pytest.mark.parametrize("path", ["/llmx/health", "/other/health", "/llm//v1/hello/a", "/llm/llm/health"])
async def test_other_prefixes_are_no_routes(connect: Any, engine_with_routes: FakeEngine, path: str) -> None:
    client = await connect(engine_with_routes, root_path="/llm")
    assert (await client.get(path)).status == 404


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *[("root_path", value) for value in ("llm", "/llm/", "/", "/a b", "/{name}", "//a")],
        *[("cors_origin", value) for value in ("", "chat.example", "https://chat.example/", "https://", "null")],
    ],
)
def test_a_wrong_prefix_or_origin_is_refused(option: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{option} must"):
        ServerConfig(**{option: value})


def cors(response: Any) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name.startswith("Access-Control-")}


async def test_a_preflight_needs_no_key_and_allows_the_headers_that_it_asks_for(
    connect: Any, engine_with_routes: FakeEngine
) -> None:
    client = await connect(engine_with_routes, cors_origin=("https://other.example", PAGE), api_key="k")
    asked = {
        "Origin": PAGE,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, x-stainless-os",
    }
    for path in ("/v1/chat/completions", "/v1/hello/a"):
        response = await client.options(path, headers=asked)
        assert response.status == 204
        assert cors(response) == {
            "Access-Control-Allow-Origin": PAGE,
            "Access-Control-Allow-Methods": "GET, POST, PUT, PATCH, DELETE",
            "Access-Control-Allow-Headers": "authorization, x-stainless-os",
            "Access-Control-Max-Age": "600",
        }
        assert response.headers["Vary"] == "Origin"
    for refused in ({**asked, "Origin": "https://evil.example"}, {"Origin": PAGE}):
        assert (await client.options("/v1/chat/completions", headers=refused)).status == 401


@pytest.mark.parametrize(("allowed", "answered"), [(PAGE, PAGE), (("*", PAGE), "*")])
@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/completions", {"prompt": "a", "stream": True}, 200),
        ("POST", "/v1/completions", {"prompt": []}, 400),
        ("GET", "/nowhere", None, 404),
        ("GET", "/v1/hello/a", None, 200),
    ],
)
async def test_streams_errors_and_plugins_have_the_headers(
    connect: Any,
    engine_with_routes: FakeEngine,
    allowed: Any,
    answered: str,
    method: str,
    path: str,
    body: Any,
    status: int,
) -> None:
    client = await connect(engine_with_routes, cors_origin=allowed)
    response = await client.request(method, path, json=body, headers={"Origin": PAGE})
    assert response.status == status
    assert cors(response) == {
        "Access-Control-Allow-Origin": answered,
        "Access-Control-Expose-Headers": "X-Request-Id, Retry-After, x-should-retry",
    }


async def test_a_missing_key_can_be_read_by_the_page_and_other_origins_get_no_headers(
    connect: Any, engine: FakeEngine
) -> None:
    client = await connect(engine, cors_origin=PAGE, api_key="k")
    response = await client.get("/v1/models", headers={"Origin": PAGE})
    assert (response.status, cors(response)["Access-Control-Allow-Origin"]) == (401, PAGE)
    for headers in ({}, {"Origin": "https://evil.example"}):
        response = await client.get("/v1/models", headers={**KEY, **headers})
        assert (response.status, cors(response), response.headers["Vary"]) == (200, {}, "Origin")


async def test_without_the_option_there_are_no_headers(client: Any) -> None:
    response = await client.get("/v1/models", headers={"Origin": PAGE})
    assert (cors(response), "Vary" in response.headers) == ({}, False)
