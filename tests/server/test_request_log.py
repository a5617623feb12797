"""Request ids, the access log, and the request id in other log lines."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage
from serve_task import Server, stop

from specserve_server.app import http_log
from specserve_server.app.log_lines import RequestIdFilter, make_handler

if TYPE_CHECKING:
    from fake_engine import FakeEngine

GENERATED = re.compile("[0-9a-f]{32}")


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/health", None, 200),
        ("GET", "/nowhere", None, 404),
        ("PUT", "/v1/models", None, 405),
        ("POST", "/v1/completions", {}, 400),
        ("POST", "/v1/completions", {"prompt": "a"}, 200),
        ("POST", "/v1/completions", {"prompt": "a", "stream": True}, 200),
        ("GET", "/v1/plain", None, 200),
        ("GET", "/v1/stream", None, 200),
        ("GET", "/v1/broken", None, 500),
    ],
)
async def test_every_response_has_the_clients_id_or_one_of_its_own(
    connect: Any, engine: FakeEngine, method: str, path: str, body: Any, status: int
) -> None:
    engine.plugins.answers["add_routes"] = add_routes
    client = await connect(engine)
    found = []
    for given in ("mine-1/2.3", None, None, "two words", "x" * 129, "é"):
        headers = {} if given is None else {"X-Request-Id": given}
        response = await client.request(method, path, json=body, headers=headers)
        assert response.status == status
        found.append(response.headers["X-Request-Id"])
    assert found[0] == "mine-1/2.3"
    assert all(GENERATED.fullmatch(id) for id in found[1:])
    assert len(set(found)) == len(found)


def add_routes(app: web.Application, engine: object) -> None:
    async def plain(request: web.Request) -> web.Response:
        return web.json_response({})

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write_eof()
        return response

    async def broken(request: web.Request) -> web.Response:
        raise ZeroDivisionError

    app.router.add_get("/v1/plain", plain)
    app.router.add_get("/v1/stream", stream)
    app.router.add_get("/v1/broken", broken)


@pytest.mark.direct
async def test_what_a_request_logs_has_its_id(
    client: Any, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(engine, "check", lambda request: 1 / 0)
    caplog.handler.addFilter(RequestIdFilter())
    await client.post("/v1/completions", json={"prompt": "a"}, headers={"X-Request-Id": "mine"})
    logging.getLogger("specserve").error("outside of requests")
    assert [(one.getMessage(), vars(one)["request"]) for one in caplog.records] == [
        ("a request failed", " [mine]"),
        ("outside of requests", ""),
    ]


def test_lines_have_time_level_and_module_and_malformed_http_is_too_little_for_one() -> None:
    printed = io.StringIO()
    handler = make_handler(printed)
    for logger in (logging.getLogger("specserve.test"), http_log.logger):
        logger.addHandler(handler)
        try:
            logger.warning("it is %d", 3)
            logger.error("malformed", exc_info=BadHttpMessage("rubbish"))
        finally:
            logger.removeHandler(handler)
    lines = [line.partition(" ") for line in printed.getvalue().splitlines() if " specserve." in line]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", time) for time, _, _ in lines)
    assert [rest for _, _, rest in lines] == [
        "WARNING specserve.test: it is 3",
        "ERROR specserve.test: malformed",
        "WARNING specserve.server.http: it is 3",
    ]


async def lines_of(server: Server, requests: Any) -> list[str]:
    """What `requests`, a coroutine function of a session, made the server print on standard error."""
    async with server.session() as session:
        await requests(session)
    printed = server.capsys.readouterr().err
    return [line for line in printed.splitlines() if not line.startswith("specserve: ")]


async def test_a_line_of_text_has_times_tokens_and_names_but_no_secret(
    engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server(engine, capsys, access_log="text", api_key="secret", served_model_name="a model")
    headers = {"x-api-key": "secret", "X-Request-Id": "mine"}

    async def requests(session: Any) -> None:
        for stream in (False, True):
            body = {"prompt": "hello", "max_tokens": 4, "stream": stream}
            await (await session.post("/v1/completions?token=secret", json=body, headers=headers)).read()
        await session.get("/v1/models%0Aforged", headers={"x-api-key": "wrong secret"})

    lines = await lines_of(server, requests)
    prompt_tokens = len(engine.tokenizer.encode("hello"))
    begin = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z 127\.0\.0\.1 "
    answered = (
        rf"POST /v1/completions 200 0\.\d+ id=mine key=key-1 model=\"a model\" answer=cmpl-\w+ "
        rf"prompt_tokens={prompt_tokens} completion_tokens=4"
    )
    for line, rest in zip(lines, [answered, answered, r"GET /v1/models%0Aforged 401 0\.\d+ id=\w+"], strict=True):
        assert re.fullmatch(begin + rest, line), line
        assert "secret" not in line
    await stop(server)


async def test_a_line_of_json_is_an_object_also_for_clients_that_left(
    engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.endless = True
    server = Server(engine, capsys, access_log="json")

    async def requests(session: Any) -> None:
        response = await session.post("/v1/completions", json={"prompt": "a", "stream": True})
        await response.content.readany()
        response.close()
        while engine.running:
            await asyncio.sleep(0.005)
        await (await session.get("/health")).read()

    left, health = map(json.loads, await lines_of(server, requests))
    assert (left["status"], left["model"], left["client"]) == (499, "fake-model", "127.0.0.1")
    assert left["completion_tokens"] > 0
    assert (health["method"], health["path"], health["status"]) == ("GET", "/health", 200)
    assert health.keys() == {"time", "client", "method", "path", "status", "seconds", "id"}
    await stop(server)


async def test_by_default_no_request_is_logged(engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    server = Server(engine, capsys)

    async def requests(session: Any) -> None:
        await session.get("/health")

    assert await lines_of(server, requests) == []
    await stop(server)
    assert not logging.getLogger("specserve.access").handlers
