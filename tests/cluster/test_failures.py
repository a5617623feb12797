"""A replica is killed: only its requests fail, and another one takes its place."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, NamedTuple

import openai
import pytest
from served import KEY

from clients import until_replaced

if TYPE_CHECKING:
    from served import Served

    from clients import Client, Json

NUM_REQUESTS = 64
BEGIN_SECONDS = 30.0


class Streamed(NamedTuple):
    replica: str
    num_tokens: int
    error: Json | None
    is_done: bool


async def stream(client: Client, number: int, begun: asyncio.Event) -> Streamed:
    """Of 200 steps: with drafts, some would end before others begin."""
    replica, num_tokens, error, is_done = "", 0, None, False
    body = {"prompt": f"# request {number}\ndef f():", "max_tokens": 200, "ignore_eos": True, "temperature": 0}
    body["speculation"] = {"enabled": False}
    async for event in client.events("/v1/completions", **body):
        if isinstance(event, str):
            is_done = True
        elif "replica" in event:
            replica = event["replica"]
        elif "error" in event:
            error = event["error"]
        else:
            begun.set()
            num_tokens += 1
    return Streamed(replica, num_tokens, error, is_done)


async def test_only_the_streams_of_a_killed_replica_end_with_an_error(cluster: Served, replicas: Client) -> None:
    before = await replicas.replica_ids()
    begun = [asyncio.Event() for _ in range(NUM_REQUESTS)]
    streams = [asyncio.create_task(stream(replicas, number, each)) for number, each in enumerate(begun)]
    async with asyncio.timeout(BEGIN_SECONDS):
        await asyncio.gather(*(each.wait() for each in begun))
    os.kill(cluster.replica_pids[0], signal.SIGKILL)
    ended = await asyncio.gather(*streams)
    after = await until_replaced(replicas, before)
    (killed,) = before - after
    print(f"{sum(each.replica == killed for each in ended)} of {NUM_REQUESTS} streams were at the killed replica")
    for each in ended:
        assert (each.error is not None) == (each.replica == killed)
        assert each.is_done == (each.error is None)
        assert each.num_tokens < 200 if each.error else each.num_tokens > 0
    assert {each.replica for each in ended} == before
    assert {each.error["type"] for each in ended if each.error} == {"service_unavailable_error"}


async def ask(sdk: openai.AsyncOpenAI, number: int) -> str:
    """Why an answer of 400 steps ended, so long that none ends before a replica is killed."""
    body = {"ignore_eos": True, "speculation": {"enabled": False}}
    answer = await sdk.completions.create(
        model="demo", prompt=f"# {number}\ndef f():", max_tokens=400, temperature=0, extra_body=body
    )
    return answer.choices[0].finish_reason


async def test_requests_without_an_answer_yet_go_to_the_other_replica(cluster: Served, replicas: Client) -> None:
    before = await replicas.replica_ids()
    async with openai.AsyncOpenAI(base_url=f"{cluster.url}/v1", api_key=KEY, max_retries=0) as sdk:
        asked = [asyncio.create_task(ask(sdk, number)) for number in range(NUM_REQUESTS)]
        async with asyncio.timeout(BEGIN_SECONDS):
            while await replicas.total("vllm:num_requests_running") < NUM_REQUESTS / 2:
                await asyncio.sleep(0.02)
        assert not any(each.done() for each in asked), "answers ended before a replica was killed"
        os.kill(cluster.replica_pids[0], signal.SIGKILL)
        assert await asyncio.gather(*asked) == ["length"] * NUM_REQUESTS
    await until_replaced(replicas, before)


async def test_the_sdk_raises_for_a_stream_that_breaks_off(cluster: Served, replicas: Client) -> None:
    before = await replicas.replica_ids()
    async with openai.AsyncOpenAI(base_url=f"{cluster.url}/v1", api_key=KEY, timeout=60) as sdk:
        answer = await sdk.completions.create(
            model="demo", prompt="def f():", max_tokens=3000, stream=True, extra_body={"ignore_eos": True}
        )
        await anext(answer)
        for pid in cluster.replica_pids:
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(openai.APIError, match="has died; send it again"):
            async for _ in answer:
                pass
    assert not before & await until_replaced(replicas, before)
