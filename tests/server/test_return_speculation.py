"""`return_speculation`: the steps of each choice, whole and in the chunks of streams, beside every other field."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fake_engine import FakeEngine
from response_checks import as_completion, check_steps, join_chunks
from tokenizer_kinds import llama2

from specserve.text.tokenizer import HfTokenizer

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
PATHS = {COMPLETIONS: {"prompt": "a"}, CHAT: {"messages": [{"role": "user", "content": "a"}]}}
TOOLS = [{"type": "function", "function": {"name": "count", "parameters": {"type": "object"}}}]
CALL = 'Wait. <tool_call>{"name": "count", "arguments": {"to": 3}}</tool_call>'


async def post(client: Any, path: str, **body: Any) -> Any:
    response = await client.post(path, json={**PATHS[path], **body})
    assert response.status == 200, await response.text()
    return await response.json()


async def whole(client: Any, path: str, **body: Any) -> list[dict[str, Any]]:
    """The choices."""
    answer = await post(client, path, return_speculation=True, return_token_ids=True, **body)
    return [as_completion(choice) for choice in answer["choices"]]


async def streamed(client: Any, path: str, **body: Any) -> list[dict[str, Any]]:
    """The chunks."""
    asked = {**PATHS[path], "return_speculation": True, "return_token_ids": True, "stream": True, **body}
    *events, done, _ = (await (await client.post(path, json=asked)).text()).split("\n\n")
    assert done == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events]


def names(choice: dict[str, Any]) -> list[str]:
    """Of the tokens, by the log-probabilities."""
    logprobs = choice["logprobs"]
    tokens: list[str] = logprobs["tokens"] if "tokens" in logprobs else [one["token"] for one in logprobs["content"]]
    return tokens


@pytest.mark.parametrize("path", PATHS)
async def test_a_choice_has_the_steps_that_gave_its_tokens(client: Any, engine: FakeEngine, path: str) -> None:
    choices = await whole(client, path, n=3, max_tokens=3)
    assert len(choices) == 3
    for choice in choices:
        check_steps(choice)
        first, second = choice["speculation"]["steps"]
        ids = engine.tokenizer.encode(engine.text)
        assert first == {
            "tokens": [{"id": ids[0], "text": "h", "drafter": "fake"}, {"id": ids[1], "text": "e", "drafter": None}],
            "draft": [
                {"id": ids[0], "text": "h", "parent": None, "drafter": "fake", "survival": 0.1235, "accepted": True},
                {"id": ids[1] - 1, "text": "d", "parent": 0, "drafter": "fake", "survival": 0.1235, "accepted": False},
            ],
            "stopped": "rejected",
            "reason": None,
            "milliseconds": 12.346,
        }
        assert [token["id"] for token in second["tokens"]] == list(ids[2:3])


@pytest.mark.parametrize("path", PATHS)
async def test_the_chunks_of_a_stream_have_each_step_once(client: Any, engine: FakeEngine, path: str) -> None:
    chunks = await streamed(client, path, n=2)
    assert all(chunk["choices"][0]["speculation"]["steps"] for chunk in chunks)
    joined, choices = join_chunks(chunks), await whole(client, path, n=2)
    assert [choice["speculation"] for choice in joined] == [choice["speculation"] for choice in choices]
    for choice in joined:
        check_steps(choice)


@pytest.mark.parametrize("path", PATHS)
async def test_tokens_are_named_as_in_logprobs(client: Any, path: str) -> None:
    logprobs = {"logprobs": 1} if path == COMPLETIONS else {"logprobs": True}
    (choice,) = await whole(client, path, **logprobs)
    texts = [token["text"] for step in choice["speculation"]["steps"] for token in step["tokens"]]
    assert texts == names(choice)
    assert any(text.startswith("bytes:") for text in texts)
    (echoed,) = await whole(client, COMPLETIONS, echo=True, logprobs=0)
    assert [token["text"] for step in echoed["speculation"]["steps"] for token in step["tokens"]] == texts


@pytest.mark.direct
@pytest.mark.parametrize("path", PATHS)
async def test_a_step_whose_text_waits_is_told_at_once(client: Any, engine: FakeEngine, path: str) -> None:
    asked = {"stop": ["never this", "lo wörld"], "return_token_ids": False}
    chunks = await streamed(client, path, **asked)
    contents = [as_completion(chunk["choices"][0]) for chunk in chunks]
    assert [bool(content["text"]) for content in contents].count(False) >= 2
    (choice,) = await whole(client, path, stop=asked["stop"])
    assert choice["text"] == "hel"
    assert [step for content in contents for step in content["speculation"]["steps"]] == choice["speculation"]["steps"]
    check_steps(choice)


async def test_calls_of_tools_are_told_in_every_chunk(connect: Any, tool_engine: FakeEngine) -> None:
    tool_engine.text = CALL
    client = await connect(tool_engine)
    body = {"tools": TOOLS, "max_tokens": 200}
    chunks = await streamed(client, CHAT, **body, return_token_ids=False)
    (choice,) = (await post(client, CHAT, **body, return_speculation=True))["choices"]
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "count"
    steps = [step for chunk in chunks for step in chunk["choices"][0]["speculation"]["steps"]]
    assert steps == choice["speculation"]["steps"]
    ids = [token["id"] for step in steps for token in step["tokens"]]
    assert ids == list(tool_engine.tokenizer.encode(CALL))


async def test_a_prompt_that_is_scored_only_has_no_steps(client: Any) -> None:
    (choice,) = await whole(client, COMPLETIONS, max_tokens=0, echo=True, logprobs=1)
    assert (choice["speculation"], choice["token_ids"]) == ({"steps": []}, [])


@pytest.mark.parametrize("path", PATHS)
async def test_nothing_is_told_unless_it_is_asked_for(client: Any, engine: FakeEngine, path: str) -> None:
    for asked in ({}, {"return_speculation": None}, {"return_speculation": False}):
        assert "speculation" not in (await post(client, path, **asked))["choices"][0]
    assert not any(request.speculation.return_steps for request in engine.submitted)
    await post(client, path, return_speculation=True, speculation={"enabled": False, "max_draft_tokens": 3})
    told = engine.submitted[-1].speculation
    assert (told.return_steps, told.enabled, told.max_draft_tokens) == (True, False, 3)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("wrong", [1, "true", {}, [True]])
async def test_what_is_no_boolean_is_refused(client: Any, path: str, wrong: Any) -> None:
    response = await client.post(path, json={**PATHS[path], "return_speculation": wrong})
    error = (await response.json())["error"]
    assert (response.status, error["param"]) == (400, "return_speculation")


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/responses", {"input": "a"}), ("/v1/messages", {"max_tokens": 9, **PATHS[CHAT]})],
)
async def test_other_apis_refuse_it_by_name(client: Any, path: str, body: dict[str, Any]) -> None:
    response = await client.post(path, json={**body, "return_speculation": True})
    assert response.status == 400
    message = (await response.json())["error"]["message"]
    assert "return_speculation" in message
    assert CHAT in message
    assert (await client.post(path, json={**body, "return_speculation": False})).status == 200


@pytest.mark.direct
async def test_the_first_token_of_a_text_is_named_without_its_blank(connect: Any) -> None:
    tokenizer = HfTokenizer(llama2())
    bos, hello, world = (tokenizer._rust.token_to_id(name) for name in ("<s>", "\u2581Hello", "\u2581world"))
    engine = FakeEngine(tokenizer, width=3, answer_ids=(hello, world, world))
    (choice,) = await whole(await connect(engine), COMPLETIONS, prompt=[bos], logprobs=0)
    (step,) = choice["speculation"]["steps"]
    assert [token["text"] for token in step["tokens"]] == names(choice) == ["Hello", " world", " world"]
    assert [node["text"] for node in step["draft"][:2]] == ["Hello", " world"]
