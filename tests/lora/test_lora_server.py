"""The whole server with lora: adapters by name, loaded and unloaded over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lora_client import BODY, LOAD, UNLOAD, Client

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path


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


async def test_unloading_what_is_in_use_is_a_conflict(client: Client) -> None:
    stream = BODY | {"model": "a1", "stream": True, "max_tokens": 1500}
    async with client.http.post("/v1/completions", json=stream) as answer:
        await answer.content.readline()
        status, error = await client.refused(UNLOAD, {"lora_name": "a1"})
        assert (status, error["code"]) == (409, "adapter_in_use")
        assert "a1 is in use by 1 request." in error["message"]
        metrics = await (await client.http.get("/metrics")).text()
        assert 'specserve_lora_requests{adapter="a1"} 1.0' in metrics
    await client.idle()  # the client is gone: the engine drops the request, and the adapter is unpinned
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
