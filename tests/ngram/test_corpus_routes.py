"""Corpora over HTTP: what is accepted, what is answered, and every error in OpenAI's body."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from fake_engine import FakeEngine
from openapi_checks import Described

from specserve.confine import find_root
from specserve_ngram.corpora.routes import CorpusRoutes
from specserve_server.app.application import make_app
from specserve_server.config import ServerConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from fake_index import FakeIndex

    from specserve.text.tokenizer import HfTokenizer
    from specserve_ngram.corpora.store import CorpusStore

CORPORA = "/v1/ngram/corpora"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "code.txt").write_text("def add(a, b):\n    return a + b\n")
    return tmp_path / "root"


@pytest.fixture
async def connect(
    store: CorpusStore, tokenizer: HfTokenizer, root: Path
) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
    """`client = await connect(rooted=False, **server_options)`."""
    clients: list[Any] = []

    async def connect(*, rooted: bool = True, **options: Any) -> Any:
        engine = FakeEngine(tokenizer)
        where = find_root("ngram.corpus_root", str(root)) if rooted else None
        engine.plugins.answers["add_routes"] = lambda app, engine: CorpusRoutes(store, where, engine.tokenizer).add_to(
            app
        )
        client: Any = TestClient(TestServer(make_app(engine, ServerConfig(**options))))
        await client.start_server()
        clients.append(client)
        return client

    yield connect
    for client in clients:
        await client.close()


@pytest.fixture
async def client(connect: Callable[..., Awaitable[Any]]) -> Any:
    return await connect()


async def ready(client: Any, name: str) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while True:
        answer = await client.get(f"{CORPORA}/{name}")
        body: dict[str, Any] = await answer.json()
        assert answer.status == 200, body
        if body["state"] != "loading":
            return body
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


async def refusal(answer: Any) -> dict[str, Any]:
    error: dict[str, Any] = (await answer.json())["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


async def test_documents_are_accepted_loaded_listed_and_deleted(client: Any, index: FakeIndex) -> None:
    answer = await client.post(CORPORA, json={"name": "docs", "documents": ["def add", "naïve"]})
    assert (answer.status, answer.headers["Location"]) == (202, f"{CORPORA}/docs")
    assert (await answer.json())["name"] == "docs"
    body = await ready(client, "docs")
    assert (body["state"], body["source"], body["bytes_total"]) == ("ready", "documents", 13)
    assert len(index.corpora) == 1
    assert await (await client.get(CORPORA)).json() == {"object": "list", "data": [body]}
    answer = await client.delete(f"{CORPORA}/docs")
    assert (answer.status, await answer.json()) == (200, {"name": "docs", "deleted": True})
    assert index.corpora == {}
    assert (await (await client.get(CORPORA)).json())["data"] == []


async def test_the_routes_answer_as_openapi_json_says(client: Any) -> None:
    document = Described(await (await client.get("/openapi.json")).json())
    one = f"{CORPORA}/docs"
    for body in ({"name": "docs", "documents": ["def add"]}, {"name": "docs", "documents": ["def add"]}, {}):
        await document.check("post", CORPORA, await client.post(CORPORA, json=body))
    await document.check("post", CORPORA, await client.post(CORPORA, json={"name": "a", "path": "/etc/passwd"}))
    for path in (CORPORA, one, f"{CORPORA}/none"):
        await document.check("get", path, await client.get(path))
    for _ in range(2):
        await document.check("delete", one, await client.delete(one))
    assert sorted(status for _, _, status in document.checked) == [200, 200, 200, 202, 400, 403, 404, 404, 409]


async def test_a_file_in_the_root_is_tokenized_as_the_model_would(
    client: Any, index: FakeIndex, tokenizer: HfTokenizer, root: Path
) -> None:
    await client.post(CORPORA, json={"name": "code", "path": "code.txt"})
    body = await ready(client, "code")
    (corpus,) = index.corpora.values()
    expected = tokenizer.encode((root / "code.txt").read_text(), add_special_tokens=False)
    assert corpus.documents == [expected]
    assert (body["source"], body["tokens"]) == ("code.txt", len(expected))


async def test_a_file_that_is_not_utf8_fails_with_its_byte(client: Any, root: Path) -> None:
    (root / "bad.txt").write_bytes(b"abc\xff")
    assert (await client.post(CORPORA, json={"name": "bad", "path": "bad.txt"})).status == 202
    body = await ready(client, "bad")
    assert body["state"] == "failed"
    assert "not UTF-8: invalid start byte at byte 3" in body["reason"]


@pytest.mark.parametrize(
    ("body", "status", "param", "said"),
    [
        ({"documents": ["a"]}, 400, "name", "name is required"),
        ({"name": "a b", "documents": ["a"]}, 400, "name", "1 to 64 of the characters"),
        ({"name": 7, "documents": ["a"]}, 400, "name", "must be a string; got 7"),
        ({"name": "a"}, 400, "path", "either path or documents; got neither"),
        ({"name": "a", "path": "code.txt", "documents": ["a"]}, 400, "path", "got both"),
        ({"name": "a", "documents": "text"}, 400, "documents", 'must be a list of strings; got "text"'),
        ({"name": "a", "documents": ["a", 1]}, 400, "documents", "documents[1]: must be a string; got 1"),
        ({"name": "a", "documents": [""]}, 400, "documents", "documents has no text"),
        ({"name": "a", "path": "none.txt"}, 400, "path", "there is no file 'none.txt'"),
        ({"name": "a", "path": "."}, 400, "path", "is a directory"),
        ({"name": "a", "path": "../secret"}, 403, "path", "is not inside ngram.corpus_root"),
        ({"name": "a", "path": "/etc/passwd"}, 403, "path", "is not inside ngram.corpus_root"),
    ],
)
async def test_what_is_wrong_is_named(client: Any, body: dict[str, Any], status: int, param: str, said: str) -> None:
    answer = await client.post(CORPORA, json=body)
    error = await refusal(answer)
    assert (answer.status, error["param"]) == (status, param)
    assert said.lower() in error["message"].lower()
    assert (await (await client.get(CORPORA)).json())["data"] == []


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 10**5, b'"text"'])
async def test_a_body_that_is_no_json_object_is_refused(client: Any, body: bytes) -> None:
    answer = await client.post(CORPORA, data=body)
    assert answer.status == 400
    await refusal(answer)


async def test_a_name_that_is_taken_is_a_conflict(client: Any) -> None:
    for status in (202, 409):
        answer = await client.post(CORPORA, json={"name": "a", "documents": ["a"]})
        assert answer.status == status
    assert "delete it first" in (await refusal(answer))["message"]


async def test_a_name_that_nobody_gave_is_not_found(client: Any) -> None:
    for method in (client.get, client.delete):
        answer = await method(f"{CORPORA}/x")
        assert (answer.status, (await refusal(answer))["param"]) == (404, "name")


async def test_a_body_that_is_too_large_is_refused(connect: Callable[..., Awaitable[Any]]) -> None:
    client = await connect(max_body_bytes=1000)
    answer = await client.post(CORPORA, json={"name": "a", "documents": ["x" * 1000]})
    assert answer.status == 413
    await refusal(answer)


async def test_without_a_root_no_file_is_read(connect: Callable[..., Awaitable[Any]]) -> None:
    client = await connect(rooted=False)
    answer = await client.post(CORPORA, json={"name": "a", "path": "code.txt"})
    assert answer.status == 403
    assert "reads no files for clients" in (await refusal(answer))["message"]
    assert (await client.post(CORPORA, json={"name": "a", "documents": ["a"]})).status == 202


async def test_another_method_is_not_allowed(client: Any) -> None:
    answer = await client.put(CORPORA, json={})
    assert (answer.status, answer.headers["Allow"]) == (405, "GET,HEAD,POST")
    await refusal(answer)


async def test_the_servers_key_guards_the_corpora(connect: Callable[..., Awaitable[Any]]) -> None:
    client = await connect(api_key="k")
    assert (await client.get(CORPORA)).status == 401
    assert (await client.get(CORPORA, headers={"Authorization": "Bearer k"})).status == 200


async def test_the_thread_ends_with_the_server(client: Any, store: CorpusStore, root: Path) -> None:
    (root / "large.txt").write_text("text " * 10**6)
    await client.post(CORPORA, json={"name": "large", "path": "large.txt"})
    await client.close()
    assert store.closed
    assert store.worker is None
