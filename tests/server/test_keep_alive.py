"""`--sse-keep-alive`: comments while a stream has no event, and what an error is after the first of them."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import openai
import pytest
from patience import PATIENCE

from specserve.errors import ConfigError, QueueFullError
from specserve_server.config import ServerConfig

if TYPE_CHECKING:
    from fake_engine import FakeEngine

COMMENT = ": keep-alive"


async def events_of(client: Any, **body: Any) -> list[str]:
    response = await client.post("/v1/completions", json={"prompt": "a", "stream": True, "max_tokens": 6, **body})
    assert response.status == 200
    assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    return (await response.text()).removesuffix("\n\n").split("\n\n")


@pytest.mark.direct
async def test_comments_are_sent_between_slow_events_and_change_none(connect: Any, engine: FakeEngine) -> None:
    plain = await events_of(await connect(engine))
    engine.delay = 0.3
    events = await events_of(await connect(engine, sse_keep_alive=0.02))
    assert events[0] == COMMENT
    assert events[-1] == "data: [DONE]"
    kept = [event for event in events if event != COMMENT]
    assert len(events) - len(kept) >= 2 * (len(kept) - 1)
    choices = [[json.loads(event[6:])["choices"] for event in some[:-1]] for some in (plain, kept)]
    assert choices[0] == choices[1]


async def test_a_stream_that_is_busy_has_no_comments(connect: Any, engine: FakeEngine) -> None:
    engine.delay = 0.01
    assert COMMENT not in await events_of(await connect(engine, sse_keep_alive=1000.0), max_tokens=99)


@pytest.mark.direct
async def test_an_error_after_a_comment_is_an_event_and_one_before_it_has_its_status(
    connect: Any, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(request: object) -> Any:
        await asyncio.sleep(0.3)
        raise QueueFullError("too many requests wait.")
        yield

    monkeypatch.setattr(engine, "submit", refuse)
    *comments, error, done = await events_of(await connect(engine, sse_keep_alive=0.02))
    assert set(comments) == {COMMENT}
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "queue_full"
    assert done == "data: [DONE]"
    client = await connect(engine, sse_keep_alive=1000.0)
    assert (await client.post("/v1/completions", json={"prompt": "a", "stream": True})).status == 429


async def test_a_client_that_leaves_while_comments_are_sent_aborts_its_request(
    connect: Any, engine: FakeEngine
) -> None:
    engine.delay = 1000.0
    client = await connect(engine, sse_keep_alive=0.01)
    response = await client.post("/v1/completions", json={"prompt": "a", "stream": True})
    assert (await response.content.readline()).startswith(b":")
    response.close()
    async with asyncio.timeout(PATIENCE):
        while engine.running:
            await asyncio.sleep(0.005)
    assert len(engine.aborted) == 1
    assert [task for task in asyncio.all_tasks() if "_send_comments" in repr(task)] == []


async def test_the_openai_sdk_skips_comments(connect: Any, engine: FakeEngine) -> None:
    engine.delay = 0.3
    client = await connect(engine, sse_keep_alive=0.01)
    async with openai.AsyncOpenAI(base_url=str(client.make_url("/v1")), api_key="x", max_retries=0) as sdk:
        stream = await sdk.completions.create(model="fake-model", prompt="a", max_tokens=4, stream=True)
        text = "".join([chunk.choices[0].text async for chunk in stream])
    assert text == engine.tokenizer.decode(engine.tokenizer.encode(engine.text)[:4])


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_seconds_that_are_none_are_refused(seconds: float) -> None:
    with pytest.raises(ConfigError, match="sse_keep_alive must be a number of seconds above 0"):
        ServerConfig(sse_keep_alive=seconds)
