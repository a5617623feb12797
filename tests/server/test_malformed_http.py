"""Malformed HTTP, wrong headers, odd paths: the client gets a 4xx, and the log no traceback."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from patience import PATIENCE

from specserve_server.app.application import make_app
from specserve_server.app.http_runner import HttpRunner
from specserve_server.config import ServerConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fake_engine import FakeEngine

BODY = b'{"prompt": "a", "max_tokens": 1}'


@pytest.fixture
async def runner(engine: FakeEngine) -> AsyncIterator[web.AppRunner]:
    runner = HttpRunner(make_app(engine, ServerConfig(max_body_bytes=100_000)))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield runner
    await runner.cleanup()


def request(
    *headers: bytes, method: bytes = b"POST", path: bytes = b"/v1/completions", body: bytes = BODY, length: bool = True
) -> bytes:
    lines = [method + b" " + path + b" HTTP/1.1", b"Host: x", b"Connection: close", *headers]
    lines += [b"Content-Length: %d" % len(body)] if length else []
    return b"\r\n".join([*lines, b"", body])


async def exchange(runner: web.AppRunner, data: bytes) -> tuple[int, str, bytes]:
    """Status, content type and body."""
    reader, writer = await asyncio.open_connection(*runner.addresses[0][:2])
    writer.write(data)
    try:
        async with asyncio.timeout(PATIENCE):
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
    lines = head.decode("latin-1").split("\r\n")
    kinds = [line.partition(": ")[2] for line in lines if line.lower().startswith("content-type")]
    return int(lines[0].split()[1]), kinds[0].partition(";")[0], body


@pytest.mark.parametrize(
    "data",
    [request(b"X: a\0b"), request(b"X\xff: a"), request(b"no colon"), request(b"X: " + b"a" * 10**5),
     request(*[b"X-%d: a" % i for i in range(5000)]), request(b"Content-Length: 5"), request(b"Transfer-Encoding: x"),
     request(b"Content-Length: -5", length=False), request(b"Content-Length: " + b"9" * 30, length=False),
     request(b"Transfer-Encoding: chunked", length=False, body=b"zz\r\n"), request(b"Content-Encoding: br"),
     request(path=b"/\xff"), request(path=b"/a\0b"), request(path=b"/" + b"a" * 10**5), request(path=b"http://[::1/"),
     request(method=b"P\0ST"), b"POST / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\r\n\r\n"],
    ids=lambda data: repr(data[:60]),
)  # fmt: skip
async def test_malformed_http_is_refused_without_a_traceback(
    runner: web.AppRunner, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    status, kind, body = await exchange(runner, data)
    assert (status, kind) == (400, "application/json")
    error = json.loads(body)["error"]
    assert error["message"].startswith(
        ("this is not valid HTTP: ", "the body's Content-Encoding is br, which is not served; send gzip")
    )
    assert (error["type"], len(error["message"]) <= 1000) == ("invalid_request_error", True)
    assert [record for record in caplog.records if record.exc_info or record.levelno > logging.INFO] == []


async def test_internal_errors_keep_their_tracebacks(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(request: web.Request) -> web.Response:
        raise ZeroDivisionError

    app = web.Application()
    app.router.add_get("/", fail)
    runner = HttpRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    data = request(method=b"GET", path=b"/", body=b"").replace(b"Connection: close\r\n", b"")  # the server closes it
    status, kind, body = await exchange(runner, data)
    assert (status, kind) == (500, "application/json")
    assert json.loads(body)["error"]["type"] == "server_error"
    await runner.cleanup()
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    ("path", "status"),
    [(b"/v1/models/%00", 404), (b"/v1/models/%ff", 404), (b"/v1/models/%ed%a0%80", 404), (b"/v1/models/%zz", 404),
     (b"/v1/models/../../health", 404), (b"/v1%2fmodels", 404), (b"//health", 404), (b"/" * 7000, 404),
     (b"/health?a=%00&b[]=%ff", 200), (b"/health#x", 200)],
)  # fmt: skip
async def test_an_odd_path_is_routed_like_any_other(runner: web.AppRunner, path: bytes, status: int) -> None:
    got, kind, body = await exchange(runner, request(method=b"GET", path=path, body=b""))
    assert (got, kind) == (status, "application/json")
    assert status == 200 or json.loads(body)["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/models", "/metrics", "/health", "/nowhere"])
async def test_every_method_gets_json(client: Any, path: str) -> None:
    for method in ("PUT", "PATCH", "DELETE", "TRACE", "OPTIONS", "PROPFIND"):
        response = await client.request(method, path)
        assert response.status == (404 if path == "/nowhere" else 405)
        assert (await response.json())["error"]["message"]


async def test_a_decompression_bomb_is_refused_at_the_body_limit(runner: web.AppRunner) -> None:
    bomb = gzip.compress(b" " * 10**8)
    status, kind, body = await exchange(runner, request(b"Content-Encoding: gzip", body=bomb))
    assert (status, kind) == (413, "application/json")
    assert b"too large" in body


async def test_the_rest_of_a_refused_body_is_not_waited_for(runner: web.AppRunner) -> None:
    """It never comes."""
    data = request(b"Content-Length: 1000000", length=False, body=b" " * 200_000)
    assert (await exchange(runner, data))[0] == 413
