"""The `code` of an error is a word that programs can compare, or null: on every route, of every status."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from specserve_server.app.application import ROUTES
from specserve_server.messages.errors import is_messages_path

if TYPE_CHECKING:
    from fake_engine import FakeEngine

METHODS = {path: {route.method for route in ROUTES if route.path == path} for path in (route.path for route in ROUTES)}
PATHS = [re.sub(r"\{.*\}", "unknown", path) for path in METHODS]
BODIES = [path for path in METHODS if "POST" in METHODS[path] and path not in ("/ping", "/reset_prefix_cache")]


def checked_code(error: dict[str, Any], path: str) -> str | None:
    """Errors of the Messages API have a type alone."""
    if is_messages_path(path):
        assert re.fullmatch("[a-z_]+", error["type"])
        return None
    assert error["code"] is None or re.fullmatch("[a-z][a-z_]*", error["code"]), error
    code: str | None = error["code"]
    return code


async def refused(client: Any, method: str, path: str, status: int, **body: Any) -> str | None:
    response = await client.request(method, path, **body)
    assert response.status == status, (method, path)
    return checked_code((await response.json())["error"], path)


@pytest.mark.parametrize("path", PATHS)
async def test_every_route_names_what_is_not_there_and_what_is_not_allowed(client: Any, path: str) -> None:
    assert await refused(client, "POST", f"/nothing{path}", 404) == "route_not_found"
    assert await refused(client, "PATCH", path, 405) in ("method_not_allowed", None)


@pytest.mark.parametrize("path", BODIES)
async def test_every_route_with_a_body_names_what_is_wrong_with_it(connect: Any, engine: FakeEngine, path: str) -> None:
    client = await connect(engine, max_body_bytes=100)
    assert await refused(client, "POST", path, 413, data=b" " * 200) in ("body_too_large", None)
    for data in (b"", b"[", b"{}", b'{"model": 5}'):
        assert await refused(client, "POST", path, 400, data=data) is None


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/v1/models/nobody", "model_not_found"),
        ("GET", "/v1/responses/nobody", "response_not_found"),
        ("DELETE", "/v1/responses/nobody", "response_not_found"),
    ],
)
async def test_what_is_unknown_by_its_name_is_told_apart_from_an_unknown_route(
    client: Any, method: str, path: str, code: str
) -> None:
    assert await refused(client, method, path, 404) == code


async def test_an_item_that_is_not_stored_has_a_code_of_its_own(client: Any) -> None:
    body = {"input": [{"type": "item_reference", "id": "msg_nobody"}]}
    assert await refused(client, "POST", "/v1/responses", 404, json=body) == "item_not_found"


async def test_a_refusal_of_a_plugins_handler_has_its_statuss_name_as_code(connect: Any, engine: FakeEngine) -> None:
    async def handler(request: web.Request) -> web.Response:
        raise {"a": web.HTTPConflict, "b": web.HTTPNotFound}[request.query["is"]](text="not this way.")

    engine.plugins.answers["add_routes"] = lambda app, engine: app.add_routes([web.get("/v1/rhyme", handler)])
    client = await connect(engine)
    assert await refused(client, "GET", "/v1/rhyme?is=a", 409) == "conflict"
    assert await refused(client, "GET", "/v1/rhyme?is=b", 404) == "not_found"
    assert await refused(client, "POST", "/v1/rhyme", 405) == "method_not_allowed"
