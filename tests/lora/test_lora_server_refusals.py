"""Wrong requests to the whole server with lora: each has its status, and the server is unharmed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from lora_client import LOAD, UNLOAD, Client
from openapi_checks import Described

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path


@pytest.mark.parametrize(("body", "status", "param", "said"), [
    ({"lora_path": "one"}, 400, "lora_name", "lora_name is required"),
    ({"lora_name": "", "lora_path": "one"}, 400, "lora_name", "lora_name is required"),
    ({"lora_name": "x"}, 400, "lora_path", "lora_path is required"),
    ({"lora_name": 3, "lora_path": "one"}, 400, "lora_name", "must be a string; got 3"),
    ({"lora_name": "x", "lora_path": "one", "load_inplace": "yes"}, 400, "load_inplace", "must be true or false; got"),
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
    ([], 400, None, "must be a JSON object"),
], ids=str)  # fmt: skip
async def test_what_is_wrong_is_named_and_the_server_is_unharmed(client, body, status, param, said) -> None:
    before = await client.text("a1")
    got, error = await client.refused(LOAD, body)
    assert (got, error["param"]) == (status, param)
    assert said.lower() in error["message"].lower()
    assert set(client.store.names()) == {"a1"}
    assert await client.text("a1") == before


async def test_the_routes_answer_as_openapi_json_says(client: Client) -> None:
    async with client.http.get("/openapi.json") as answer:
        document = Described(await answer.json())
    good = {"lora_name": "x", "lora_path": "one"}
    for path, body in [
        (LOAD, good),
        (LOAD, good),
        (LOAD, {}),
        (LOAD, {**good, "lora_path": "/etc"}),
        (UNLOAD, good),
        (UNLOAD, good),
        (UNLOAD, {}),
    ]:
        async with client.http.post(path, json=body) as answer:
            await document.check("post", path, answer)
    assert sorted(status for _, _, status in document.checked) == [200, 200, 400, 400, 403, 404, 409]


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
