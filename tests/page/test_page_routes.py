"""The page's files over HTTP: who gets them, with which headers, and that they cost a server little."""

from __future__ import annotations

import asyncio
import gzip
from importlib import metadata
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from fake_engine import FakeEngine

from specserve.errors import ConfigError
from specserve_page.routes import page_routes, static_files
from specserve_server import page
from specserve_server.app.application import make_app
from specserve_server.config import ServerConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from specserve.text.tokenizer import HfTokenizer

    Connect = Callable[..., Awaitable[Any]]

PATHS = [route.path for route in page_routes()]
NEEDED_DIRECTIVES = {
    *("default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "img-src 'self' data:"),
    *("base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"),
}


@pytest.fixture
async def connect(tokenizer: HfTokenizer) -> AsyncIterator[Connect]:
    """`client = await connect(**server_options)`; `engine` in place of a fake one."""
    clients: list[Any] = []

    async def connect(engine: Any = None, **options: Any) -> Any:
        app = make_app(engine or FakeEngine(tokenizer), ServerConfig(**options))
        clients.append(TestClient(TestServer(app), auto_decompress=False))
        await clients[-1].start_server()
        return clients[-1]

    yield connect
    for client in clients:
        await client.close()


def test_every_file_has_a_path_and_the_index_is_the_root() -> None:
    names = {file.name for file in static_files()} - {"index.html"}
    assert sorted(PATHS) == sorted(["/", *(f"/page/{name}" for name in names)])


@pytest.mark.parametrize("path", PATHS)
async def test_each_file_is_served_without_a_key_under_a_strict_policy(connect: Connect, path: str) -> None:
    client = await connect(api_key="secret")
    response = await client.get(path)
    assert response.status == 200
    directives = set(response.headers["Content-Security-Policy"].split("; "))
    assert directives >= NEEDED_DIRECTIVES
    assert "unsafe" not in response.headers["Content-Security-Policy"]
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Cache-Control"] == "no-cache"
    assert (await client.get("/v1/models")).status == 401
    assert (await client.get("/v1/plugins/pairs")).status == 401


async def test_a_browser_that_has_the_file_gets_no_body(connect: Connect) -> None:
    client = await connect()
    etag = (await client.get("/", headers={"Accept-Encoding": "identity"})).headers["ETag"]
    for given in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        response = await client.get("/", headers={"Accept-Encoding": "identity", "If-None-Match": given})
        assert (response.status, await response.read()) == (304, b"")
    response = await client.get("/", headers={"If-None-Match": '"other"'})
    assert response.status == 200


async def test_a_file_is_sent_compressed_to_those_who_take_it(connect: Connect) -> None:
    client = await connect()
    plain = await client.get("/page/style.css", headers={"Accept-Encoding": "identity"})
    packed = await client.get("/page/style.css", headers={"Accept-Encoding": "gzip, br"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(await packed.read()) == await plain.read()
    assert packed.headers["ETag"] != plain.headers["ETag"]
    assert packed.headers["Vary"] == "Accept-Encoding"


@pytest.mark.parametrize(
    "path",
    ["/page/", "/page/none.js", "/page/../pyproject.toml", "/page/%2e%2e/routes.py", "/page/..%2froutes.py", "/page"],
)
async def test_no_other_file_can_be_asked_for(connect: Connect, path: str) -> None:
    client = await connect()
    response = await client.request("GET", path)
    assert response.status == 404


async def test_the_page_is_only_read(connect: Connect) -> None:
    client = await connect()
    assert (await client.head("/")).status == 200
    response = await client.post("/", data=b"x" * 10)
    assert (response.status, response.headers["Allow"]) == (405, "GET,HEAD")


async def test_a_hostile_client_of_the_page_costs_others_nothing(connect: Connect) -> None:
    """Files are read and compressed once; a request is answered from memory whatever its headers are."""
    client = await connect()
    etags = ", ".join('"x"' for _ in range(1500))

    async def ask(n: int) -> int:
        return (await client.get(PATHS[n % len(PATHS)], headers={"If-None-Match": etags})).status

    async with asyncio.timeout(60):
        assert set(await asyncio.gather(*map(ask, range(300)))) == {200}
        assert (await client.post("/v1/completions", json={"prompt": "a"})).status == 200


async def test_the_page_is_there_while_the_model_loads(connect: Connect) -> None:
    async def never() -> Any:
        await asyncio.Event().wait()

    client = await connect(never)
    assert (await client.get("/")).status == 200
    assert (await client.get("/v1/models")).status == 503


async def test_behind_a_proxy_the_page_has_its_prefix(connect: Connect) -> None:
    client = await connect(root_path="/llm", api_key="secret")
    for path in ("/llm/", "/llm/page/main.js", "/page/main.js"):
        assert (await client.get(path)).status == 200


async def test_the_prefix_without_a_slash_leads_to_the_page(connect: Connect) -> None:
    client = await connect(root_path="/llm", api_key="secret")
    response = await client.get("/llm", allow_redirects=False)
    assert (response.status, response.headers["Location"]) == (308, "/llm/")
    assert (await client.get("/llm")).url.path == "/llm/"
    without = await connect(root_path="/llm", page=False)
    assert (await without.get("/llm")).status == 404


async def test_no_page_leaves_it_off(connect: Connect) -> None:
    client = await connect(page=False)
    assert (await client.get("/")).status == 404
    assert (await client.get("/page/main.js")).status == 404


def entry_point(value: str) -> metadata.EntryPoint:
    return metadata.EntryPoint("page", value, page.GROUP)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["specserve_page.routes:page_routes", "other:routes"], "only one page .* other:routes and specserve_page"),
        (["specserve_page.none:routes"], "the page, specserve_page.none:routes, which cannot be used.* --no-page"),
        (["specserve_page.routes:POLICY"], "cannot be used: TypeError"),
    ],
)
def test_a_page_that_cannot_be_served_is_refused(monkeypatch: pytest.MonkeyPatch, values: list[str], said: str) -> None:
    monkeypatch.setattr(page.metadata, "entry_points", lambda group: [entry_point(value) for value in values])
    page.installed_page.cache_clear()
    with pytest.raises(ConfigError, match=said):
        page.installed_page()


def test_without_the_distribution_there_is_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page.metadata, "entry_points", lambda group: [])
    page.installed_page.cache_clear()
    assert page.installed_page() is page.NO_PAGE
    page.installed_page.cache_clear()
