"""Server-sent events, byte by byte; what happens when a client leaves or the engine fails."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from patience import PATIENCE

if TYPE_CHECKING:
    from fake_engine import FakeEngine


async def stream_bytes(client: Any, path: str = "/v1/completions", **body: Any) -> bytes:
    body = {"max_tokens": 99, "stream": True, **body}
    body |= {"messages": [{"role": "user", "content": "a"}]} if "chat" in path else {"prompt": "a"}
    response = await client.post(path, json=body)
    assert response.status == 200, await response.text()
    assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    data: bytes = await response.read()
    return data


async def stream(client: Any, path: str = "/v1/completions", **body: Any) -> list[Any]:
    data = await stream_bytes(client, path, **body)
    assert data.endswith(b"data: [DONE]\n\n")
    return [json.loads(event.removeprefix(b"data: ")) for event in data.split(b"\n\n")[:-2]]


def text_of(chunks: list[Any], index: int = 0) -> str:
    return "".join(c["text"] for chunk in chunks for c in chunk["choices"] if c["index"] == index)


async def test_every_line_is_data_or_empty_and_the_last_is_done(client: Any) -> None:
    lines = (await stream_bytes(client)).split(b"\n")
    assert all(line == b"" or line.startswith(b"data: ") for line in lines)
    assert lines[-3:] == [b"data: [DONE]", b"", b""]


@pytest.mark.parametrize("width", [1, 2, 7, 99])
@pytest.mark.parametrize("stop", [None, "wör", "🙂", "zzz"])
async def test_a_stream_adds_up_to_the_full_response(
    client: Any, engine: FakeEngine, width: int, stop: str | None
) -> None:
    engine.width = width
    whole = await (await client.post("/v1/completions", json={"prompt": "a", "max_tokens": 99, "stop": stop})).json()
    chunks = await stream(client, stop=stop)
    assert text_of(chunks) == whole["choices"][0]["text"]
    assert chunks[-1]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert not any("�" in chunk["choices"][0]["text"] for chunk in chunks)
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks[:-1])
    assert all(key not in chunk for chunk in chunks for key in ("usage", "metrics"))


async def test_usage_and_speculation_come_last_and_only_when_asked(client: Any, engine: FakeEngine) -> None:
    *chunks, last = await stream(client, stream_options={"include_usage": True})
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == len(engine.tokenizer.encode(engine.text))
    assert last["metrics"]["speculative_decoding"]["mean_acceptance_length"] == 2.0
    assert not any("usage" in chunk for chunk in chunks)


async def test_continuous_usage_grows(client: Any) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    counts = [chunk["usage"]["completion_tokens"] for chunk in await stream(client, stream_options=options)]
    assert counts == sorted(counts)
    assert len(set(counts)) > 2


async def test_choices_are_told_apart_by_index(client: Any, engine: FakeEngine) -> None:
    chunks = await stream(client, n=3)
    assert [text_of(chunks, i) for i in range(3)] == [engine.text] * 3


async def test_the_first_chat_chunk_has_role_and_text(client: Any, engine: FakeEngine) -> None:
    chunks = await stream(client, "/v1/chat/completions")
    first, *rest = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert first["role"] == "assistant"
    assert first["content"]
    assert not any("role" in delta for delta in rest)
    assert first["content"] + "".join(delta["content"] for delta in rest) == engine.text
    assert chunks[0]["object"] == "chat.completion.chunk"


@pytest.mark.direct
async def test_chunks_have_their_own_token_ids_logprobs_and_accepted_flags(client: Any, engine: FakeEngine) -> None:
    chunks = [chunk["choices"][0] for chunk in await stream(client, return_token_ids=True, logprobs=1, echo=True)]
    assert [id for chunk in chunks for id in chunk["token_ids"]] == engine.tokenizer.encode(engine.text)
    assert all(len(chunk["accepted"]) == len(chunk["token_ids"]) for chunk in chunks)
    assert all(chunk["drafted_by"] == ["fake" if flag else None for flag in chunk["accepted"]] for chunk in chunks)
    assert [chunk["text_offset"] for chunk in chunks[:2]] == [[1, 2], [3, 4]]
    assert "prompt_token_ids" in chunks[0]
    assert "prompt_token_ids" not in chunks[1]
    tokens = [token for chunk in chunks for token in chunk["logprobs"]["tokens"]]
    assert len(tokens) == 1 + len(engine.tokenizer.encode(engine.text))
    assert "".join(chunk["text"] for chunk in chunks) == "a" + engine.text


@pytest.mark.direct
async def test_an_engine_error_is_an_event_in_a_stream_and_a_500_otherwise(client: Any, engine: FakeEngine) -> None:
    engine.error_after = 1
    *_, last = await stream(client)
    assert last["error"]["type"] == "server_error"
    response = await client.post("/v1/completions", json={"prompt": "a"})
    assert response.status == 500
    assert response.headers["x-should-retry"] == "false"
    assert "device" in (await response.json())["error"]["message"]


async def test_one_failing_choice_aborts_its_siblings(client: Any, engine: FakeEngine) -> None:
    engine.error_after = 1
    assert (await client.post("/v1/completions", json={"prompt": "a", "n": 4})).status == 500
    assert not engine.running


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("streams", [True, False])
async def test_a_client_that_leaves_aborts_its_requests(client: Any, engine: FakeEngine, streams: bool, n: int) -> None:
    engine.endless = True
    reading = asyncio.create_task(client.post("/v1/completions", json={"prompt": "a", "stream": streams, "n": n}))
    async with asyncio.timeout(PATIENCE):
        if streams:
            response = await reading
            await response.content.readany()
            response.close()
        else:
            while len(engine.running) < n:
                await asyncio.sleep(0.005)
            reading.cancel()
        while engine.running or len(engine.aborted) < n:
            await asyncio.sleep(0.005)


async def test_a_prompt_that_is_too_long_is_400_before_the_stream(client: Any, engine: FakeEngine) -> None:
    response = await client.post("/v1/completions", json={"prompt": [1] * 999, "stream": True})
    assert response.status == 400
    assert (await response.json())["error"]["code"] == "context_length_exceeded"
    assert engine.submitted == []
