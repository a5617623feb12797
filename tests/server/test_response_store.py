"""The store of responses: its bounds, and whose they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from specserve.errors import ResponseNotFoundError
from specserve_server.bodies.requests import Message
from specserve_server.bodies.responses import InputItem
from specserve_server.responses.store import RESPONSES, ResponseStore

if TYPE_CHECKING:
    from fake_engine import FakeEngine

MESSAGES = [Message(role="user", content="a" * 50)]
OUTPUT = [InputItem(type="message", id="msg_1", role="assistant", content="b")]
SIZE = len(msgspec.json.encode(MESSAGES)) + len(msgspec.json.encode(OUTPUT)) + 100


def filled(store: ResponseStore, count: int) -> list[str]:
    for i in range(count):
        store.put(str(i), "", bytes(100), [msgspec.structs.replace(OUTPUT[0], id=f"msg_{i}")], MESSAGES)
    return list(store.responses)


def test_the_oldest_are_dropped_beyond_a_number() -> None:
    store = ResponseStore(max_responses=3)
    assert filled(store, 5) == ["2", "3", "4"]
    assert store.num_bytes == 3 * SIZE
    with pytest.raises(ResponseNotFoundError, match="was among the oldest and is dropped"):
        store.get("1", "")


def test_the_oldest_are_dropped_beyond_a_size() -> None:
    store = ResponseStore(max_bytes=3 * SIZE + 1)
    assert filled(store, 5) == ["2", "3", "4"]
    store.put("large", "", bytes(4 * SIZE), OUTPUT, MESSAGES)
    assert (store.responses, store.response_ids, store.num_bytes) == ({}, {}, 0)


def test_a_response_is_its_owners() -> None:
    store = ResponseStore()
    store.put("a", "one", b"{}", OUTPUT, MESSAGES)
    for method in (store.get, store.delete):
        with pytest.raises(ResponseNotFoundError, match='no response "a" is stored'):
            method("a", "other")
    with pytest.raises(ResponseNotFoundError, match='no item "msg_1" is stored'):
        store.output_item("msg_1", "input[0].id", "other")
    assert (store.get("a", "one").data, store.output_item("msg_1", "input[0].id", "one")) == (b"{}", OUTPUT[0])
    store.delete("a", "one")
    assert (store.response_ids, store.num_bytes) == ({}, 0)


async def test_a_response_belongs_to_the_key_that_made_it(connect: Any, engine: FakeEngine) -> None:
    client = await connect(engine, api_key="k")
    made = []
    for header in ({"Authorization": "Bearer k"}, {"Authorization": "bearer  k"}):
        response = await client.post("/v1/responses", json={"input": "a"}, headers=header)
        made.append((await response.json())["id"])
    store: ResponseStore = client.app[RESPONSES]
    (owner,) = {stored.owner for stored in store.responses.values()}
    assert owner
    assert owner != "k"
    path = f"/v1/responses/{made[0]}"
    assert (await client.get(path, headers={"Authorization": "Bearer k"})).status == 200
    store.responses[made[0]] = store.responses[made[0]]._replace(owner="another")
    assert (await client.get(path, headers={"Authorization": "Bearer k"})).status == 404
    assert (await client.delete(path, headers={"Authorization": "Bearer k"})).status == 404
