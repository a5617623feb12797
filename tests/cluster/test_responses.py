"""Stored responses are found, whichever replica has them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clients import Client

PATH = "/v1/responses"


async def test_a_response_is_read_continued_and_deleted_where_it_is_stored(replicas: Client) -> None:
    made = await asyncio.gather(*(replicas.post(PATH, input=f"{number}?", max_output_tokens=8) for number in range(12)))
    holders = {answer.json["id"]: answer.headers["X-Specserve-Replica"] for answer in made}
    assert set(holders.values()) == await replicas.replica_ids(), "both replicas hold some"
    for id, holder in holders.items():
        read = await replicas.send("GET", f"{PATH}/{id}")
        assert (read.status, read.headers["X-Specserve-Replica"]) == (200, holder)
        more = await replicas.post(PATH, input="and then?", max_output_tokens=8, previous_response_id=id)
        assert (more.status, more.headers["X-Specserve-Replica"]) == (200, holder), more.body
    for id in holders:
        assert (await replicas.send("DELETE", f"{PATH}/{id}")).status == 200
        assert (await replicas.send("GET", f"{PATH}/{id}")).status == 404


async def test_streamed_responses_are_found_too(replicas: Client) -> None:
    ids = []
    async for event in replicas.events(PATH, input="hello", max_output_tokens=8):
        if isinstance(event, dict) and event.get("type") == "response.created":
            ids.append(event["response"]["id"])
    assert (await replicas.send("GET", f"{PATH}/{ids[0]}")).status == 200


async def test_an_item_of_a_stored_response_may_be_referred_to(replicas: Client) -> None:
    made = (await replicas.post(PATH, input="hello", max_output_tokens=8)).json
    items = [{"type": "item_reference", "id": made["output"][0]["id"]}, {"role": "user", "content": "go on"}]
    answer = await replicas.post(PATH, input=items, max_output_tokens=8)
    assert answer.status == 200, answer.body
