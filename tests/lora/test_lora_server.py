"""The whole server with lora: adapters by name, loading and unloading over HTTP, wrong inputs with their status."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from toy_adapters import lora_of, lora_options, write_adapter

from specserve.config import EngineConfig, ServerConfig
from specserve.engine.async_engine import AsyncEngine
from specserve.server.app import make_app
from specserve.testing.engines import DEFAULTS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
BODY: dict[str, Any] = {"prompt": "def add(a, b):", "max_tokens": 12, "temperature": 0, "ignore_eos": True}


class Client:
    """A server's client, and the store behind it."""

    def __init__(self, http: Any, store: Any) -> None:
        self.http, self.store = http, store

    async def post(self, path: str, body: Any) -> tuple[int, str]:
        async with self.http.post(path, json=body) as answer:
            return answer.status, await answer.text()

    async def text(self, model: str | None, **fields: Any) -> str:
        status, text = await self.post("/v1/completions", BODY | {"model": model} | fields)
        assert status == 200, text
        choice: dict[str, str] = json.loads(text)["choices"][0]
        return choice["text"]

    async def idle(self) -> None:
        """Pins go when the engine has forgotten the requests, which may be after the answer."""
        async with asyncio.timeout(20):
            while any(self.store.usage().values()):
                await asyncio.sleep(0.002)

    async def refused(self, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        status, text = await self.post(path, body)
        error: dict[str, Any] = json.loads(text)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return status, error


@pytest.fixture
def root(toy_model: Path, tmp_path: Path) -> Path:
    for i, name in enumerate(("one", "two", "three")):
        write_adapter(tmp_path / "root" / name, toy_model, seed=50 + i, size=0.6)
    write_adapter(tmp_path / "outside", toy_model)
    return tmp_path / "root"


@pytest.fixture
async def connect(toy_model: Path, adapters: dict[str, Path]) -> AsyncIterator[Callable[..., Awaitable[Client]]]:
    """`client = await connect(root=..., max_loaded=...)`: a server with adapter a1."""
    clients: list[Any] = []

    async def connect(**settings: Any) -> Client:
        tables = lora_options({"a1": adapters["a1"]}, **settings)
        config = EngineConfig(model=str(toy_model), plugins=("lora",), plugin_options=tables, **DEFAULTS)
        engine = await AsyncEngine.start(config)
        http: Any = TestClient(TestServer(make_app(engine, ServerConfig(served_model_name="toy"))))
        await http.start_server()
        clients.append(http)
        return Client(http, lora_of(engine.engine))

    yield connect
    for client in clients:
        await client.close()


@pytest.fixture
async def client(connect: Callable[..., Awaitable[Client]], root: Path) -> Client:
    return await connect(root=str(root))


async def test_a_request_names_its_adapter_alone_or_behind_the_base(client: Client) -> None:
    base, adapted = await client.text(None), await client.text("a1")
    assert base == await client.text("toy")
    assert adapted == await client.text("toy:a1") == await client.text("a1", cache_salt="s")
    assert adapted != base
    status, error = await client.refused("/v1/completions", BODY | {"model": "a2"})
    assert (status, error["code"]) == (404, "model_not_found")
    await client.idle()


async def test_adapters_are_listed_with_their_parent(client: Client) -> None:
    answer = await (await client.http.get("/v1/models")).json()
    assert [(card["id"], card["parent"]) for card in answer["data"]] == [("toy", None), ("a1", "toy")]
    assert (await (await client.http.get("/v1/models/a1")).json())["parent"] == "toy"


async def test_an_adapter_is_loaded_served_replaced_and_unloaded(client: Client) -> None:
    assert await client.post(LOAD, {"lora_name": "x", "lora_path": "one"}) == (
        200,
        "Success: LoRA adapter 'x' added successfully.",
    )
    one = await client.text("x")
    status, error = await client.refused(LOAD, {"lora_name": "x", "lora_path": "two"})
    assert (status, error["param"]) == (409, "lora_name")
    assert "Pass load_inplace: true" in error["message"]
    assert (await client.post(LOAD, {"lora_name": "x", "lora_path": "two", "load_inplace": True}))[0] == 200
    assert await client.text("x") != one
    assert await client.post(UNLOAD, {"lora_name": "x"}) == (200, "Success: LoRA adapter 'x' removed successfully.")
    assert (await client.refused("/v1/completions", BODY | {"model": "x"}))[0] == 404
    assert (await client.refused(UNLOAD, {"lora_name": "x"}))[0] == 404


async def test_absolute_paths_inside_the_root_are_taken(client: Client, root: Path) -> None:
    assert (await client.post(LOAD, {"lora_name": "x", "lora_path": str(root / "one")}))[0] == 200


@pytest.mark.parametrize(("body", "status", "param", "said"), [
    ({"lora_path": "one"}, 400, "lora_name", "lora_name is required"),
    ({"lora_name": "", "lora_path": "one"}, 400, "lora_name", "lora_name is required"),
    ({"lora_name": "x"}, 400, "lora_path", "lora_path is required"),
    ({"lora_name": 3, "lora_path": "one"}, 400, "lora_name", "Expected `str"),
    ({"lora_name": "x", "lora_path": "one", "load_inplace": "yes"}, 400, "load_inplace", "Expected `bool"),
    ({"lora_name": "a b", "lora_path": "one"}, 400, "lora_name", "printable characters"),
    ({"lora_name": "a:b", "lora_path": "one"}, 400, "lora_name", "printable characters"),
    ({"lora_name": "x" * 129, "lora_path": "one"}, 400, "lora_name", "1 to 128"),
    ({"lora_name": "a1", "lora_path": "one"}, 409, "lora_name", "is loaded already"),
    ({"lora_name": "x", "lora_path": "none"}, 400, "lora_path", "there is no directory 'none'; name the directory"),
    ({"lora_name": "x", "lora_path": "one/adapter_config.json"}, 400, "lora_path", "is a file; name the directory"),
    ({"lora_name": "x", "lora_path": "."}, 400, "lora_path", "there is no file ./adapter_config.json"),
    ({"lora_name": "x", "lora_path": "../outside"}, 403, "lora_path", "is not inside lora.root"),
    ({"lora_name": "x", "lora_path": "/etc"}, 403, "lora_path", "is not inside lora.root"),
    ({"lora_name": "x", "lora_path": "a\0b"}, 400, "lora_path", "is not a usable path"),
    ({"lora_name": "x", "lora_path": "y" * 5000}, 400, "lora_path", "yyy"),
    ([], 400, None, "Expected `object`"),
], ids=str)  # fmt: skip
async def test_what_is_wrong_is_named_and_the_server_is_unharmed(client, body, status, param, said) -> None:
    before = await client.text("a1")
    got, error = await client.refused(LOAD, body)
    assert (got, error["param"]) == (status, param)
    assert said.lower() in error["message"].lower()
    assert set(client.store.names()) == {"a1"}
    assert await client.text("a1") == before


async def test_broken_adapters_are_refused_and_the_server_is_unharmed(client: Client, root: Path) -> None:
    before = await client.text("a1")
    file = root / "one" / "adapter_model.safetensors"
    whole = file.read_bytes()
    for content, said in ((whole[:-1], "truncated"), (b"", "truncated"), (whole[:8] + b"x" * 99, "truncated")):
        file.write_bytes(content)
        status, error = await client.refused(LOAD, {"lora_name": "x", "lora_path": "one"})
        assert status == 400
        assert said in error["message"]
    file.unlink()
    os.mkfifo(file)
    status, error = await client.refused(LOAD, {"lora_name": "x", "lora_path": "one"})
    assert (status, "is not a regular file" in error["message"]) == (400, True)
    for data in (b"", b"{", b"\xff", b"[" * 10**5):
        async with client.http.post(LOAD, data=data) as answer:
            assert answer.status == 400
    assert await client.text("a1") == before


async def test_links_that_leave_the_root_are_refused(client: Client, root: Path) -> None:
    (root / "out").symlink_to(root.parent / "outside")
    (root / "in").symlink_to(root / "one")
    assert (await client.refused(LOAD, {"lora_name": "x", "lora_path": "out"}))[0] == 403
    assert (await client.post(LOAD, {"lora_name": "x", "lora_path": "in"}))[0] == 200


async def test_without_a_root_nothing_is_loaded_or_unloaded(connect: Callable[..., Awaitable[Client]]) -> None:
    client = await connect()
    for path, body in ((LOAD, {"lora_name": "x", "lora_path": "one"}), (UNLOAD, {"lora_name": "a1"}), (LOAD, {})):
        status, error = await client.refused(path, body)
        assert (status, error["type"]) == (403, "permission_error")
        assert "Start it with --set lora.root=DIR" in error["message"]
    assert await client.text("a1")


async def test_unloading_what_is_in_use_is_a_conflict(client: Client) -> None:
    stream = BODY | {"model": "a1", "stream": True, "max_tokens": 1500}
    async with client.http.post("/v1/completions", json=stream) as answer:
        await answer.content.readline()
        status, error = await client.refused(UNLOAD, {"lora_name": "a1"})
        assert (status, error["code"]) == (409, "adapter_in_use")
        assert "a1 is in use by 1 request." in error["message"]
        metrics = await (await client.http.get("/metrics")).text()
        assert 'specserve_lora_requests{adapter="a1"} 1.0' in metrics
    await client.idle()  # the client is gone: the engine drops the request, and the pin goes
    assert (await client.post(UNLOAD, {"lora_name": "a1"}))[0] == 200


async def test_where_all_are_in_use_another_must_wait(connect: Callable[..., Awaitable[Client]], root: Path) -> None:
    client = await connect(root=str(root), max_loaded=1)
    assert (await client.post(LOAD, {"lora_name": "x", "lora_path": "one"}))[0] == 200  # a1 is evicted
    first = await client.text("a1")
    await client.idle()
    pin = client.store.pin("a1")
    async with client.http.post("/v1/completions", json=BODY | {"model": "x"}) as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
        assert "lora.max_loaded allows 1" in (await answer.json())["error"]["message"]
    client.store.unpin(pin)
    assert await client.text("x") != first
    metrics = await (await client.http.get("/metrics")).text()
    for line in ("known 2.0", "loaded 1.0", "loads_total 4.0", "evictions_total 3.0"):
        assert f"specserve_lora_{line}" in metrics


async def test_one_whose_files_are_gone_is_lost_and_comes_back(
    connect: Callable[..., Awaitable[Client]], root: Path
) -> None:
    client = await connect(root=str(root), max_loaded=1)
    for name in ("one", "two"):
        assert (await client.post(LOAD, {"lora_name": name, "lora_path": name}))[0] == 200
    (root / "one").rename(root / "moved")
    status, error = await client.refused("/v1/completions", BODY | {"model": "one"})
    assert (status, "was evicted and cannot be loaded again" in error["message"]) == (503, True)
    (root / "moved").rename(root / "one")
    await client.idle()
    assert await client.text("one")
