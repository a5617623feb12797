"""POST /v1/chat/completions: messages, defaults, shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fake_engine import FakeEngine

MESSAGES = [{"role": "user", "content": "x = 0"}]


async def chat(client: Any, **body: Any) -> Any:
    response = await client.post("/v1/chat/completions", json={"messages": MESSAGES, **body})
    assert response.status == 200, await response.text()
    return await response.json()


async def test_a_chat_completion_has_openais_shape(client: Any, engine: FakeEngine) -> None:
    body = await chat(client)
    assert body["object"] == "chat.completion"
    (choice,) = body["choices"]
    assert choice["message"] == {"role": "assistant", "content": engine.text, "refusal": None}
    assert choice["finish_reason"] == "length"


async def test_the_template_and_the_rest_of_the_context_are_used(client: Any, engine: FakeEngine) -> None:
    await chat(client)
    (request,) = engine.submitted
    assert engine.tokenizer.decode(request.prompt_token_ids) == "user: x = 0\n"
    assert request.params.max_tokens == engine.max_model_len - len(request.prompt_token_ids)


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
async def test_max_tokens_has_two_names(client: Any, engine: FakeEngine, field: str) -> None:
    assert (await chat(client, **{field: 3}))["usage"]["completion_tokens"] == 3


async def test_text_parts_of_a_message_are_joined(client: Any, engine: FakeEngine) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    await chat(client, messages=[{"role": "user", "content": parts}])
    assert engine.tokenizer.decode(engine.submitted[0].prompt_token_ids) == "user: a\nb\n"


async def test_logprobs_have_openais_shape(client: Any, engine: FakeEngine) -> None:
    content = (await chat(client, logprobs=True, top_logprobs=2))["choices"][0]["logprobs"]["content"]
    assert b"".join(bytes(token["bytes"]) for token in content).decode() == engine.text
    assert all(len(token["top_logprobs"]) == 2 for token in content)
    assert all(token["top_logprobs"][0]["logprob"] == token["logprob"] for token in content)
    silent = (await chat(client, logprobs=True))["choices"][0]["logprobs"]["content"]
    assert silent[0]["top_logprobs"] == []


async def test_token_ids_stand_beside_the_choices(client: Any, engine: FakeEngine) -> None:
    body = await chat(client, return_token_ids=True, n=2)
    assert body["prompt_token_ids"] == list(engine.submitted[0].prompt_token_ids)
    choice = body["choices"][1]
    assert choice["token_ids"] == engine.tokenizer.encode(engine.text)
    assert (choice["text_offset"][0], len(choice["text_offset"])) == (0, len(choice["token_ids"]))
    assert choice["drafted_by"] == ["fake" if flag else None for flag in choice["accepted"]]
