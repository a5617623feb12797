"""The openai SDK as a client, with and without streaming."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import openai
import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fake_engine import FakeEngine


@pytest.fixture
async def sdk(connect: Any, engine: FakeEngine) -> AsyncIterator[openai.AsyncOpenAI]:
    client = await connect(engine, api_key="sk-1")
    async with openai.AsyncOpenAI(base_url=str(client.make_url("/v1")), api_key="sk-1", max_retries=0) as sdk:
        yield sdk


async def test_the_sdk_lists_models(sdk: openai.AsyncOpenAI) -> None:
    models = await sdk.models.list()
    assert [model.id for model in models.data] == ["fake-model"]
    assert (await sdk.models.retrieve("fake-model")).owned_by == "specserve"


async def test_the_sdk_reads_a_completion(sdk: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    response = await sdk.completions.create(model="fake-model", prompt="a", max_tokens=99, logprobs=1)
    assert response.choices[0].text == engine.text
    assert response.choices[0].logprobs is not None
    assert response.usage is not None
    assert response.usage.completion_tokens == len(engine.tokenizer.encode(engine.text))


async def test_the_sdk_reads_a_streamed_completion(sdk: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    stream = await sdk.completions.create(
        model="fake-model", prompt="a", max_tokens=99, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].text for chunk in chunks[:-1]) == engine.text
    assert chunks[-1].usage is not None


async def test_the_sdk_reads_a_chat_completion(sdk: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    messages: Any = [{"role": "user", "content": "a"}]
    response = await sdk.chat.completions.create(model="fake-model", messages=messages, logprobs=True, top_logprobs=1)
    assert response.choices[0].message.content == engine.text
    assert response.choices[0].logprobs is not None


async def test_the_sdk_reads_a_streamed_chat_completion(sdk: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    messages: Any = [{"role": "user", "content": "a"}]
    stream = await sdk.chat.completions.create(model="fake-model", messages=messages, stream=True)
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == engine.text
    assert chunks[0].choices[0].delta.role == "assistant"


async def test_errors_become_the_exceptions_of_the_sdk(sdk: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    with pytest.raises(openai.BadRequestError, match="n: "):
        await sdk.completions.create(model="fake-model", prompt="a", n=0)
    with pytest.raises(openai.NotFoundError, match="gpt-x"):
        await sdk.completions.create(model="gpt-x", prompt="a")
    with pytest.raises(openai.AuthenticationError):
        await sdk.with_options(api_key="wrong").models.list()
    engine.error_after = 0
    with pytest.raises(openai.APIError, match="device"):
        async for _ in await sdk.completions.create(model="fake-model", prompt="a", stream=True):
            pass
