"""Every message of a conversation has content, an error in it names its place, and answers can be sent back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fake_engine import FakeEngine

CHAT, TOKENIZE, MESSAGES, RESPONSES = "/v1/chat/completions", "/tokenize", "/v1/messages", "/v1/responses"
USER = {"role": "user", "content": "a"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOLS = [{"type": "function", "function": {"name": "f"}}]
TEXT = {"type": "text", "text": "a"}
CALLS = {"role": "assistant", "tool_calls": [CALL]}

WRONG_MESSAGES: list[tuple[dict[str, Any], str]] = [
    *(({"role": role}, "messages[1].content: is missing") for role in ("user", "system", "tool", "assistant")),
    *(({"role": role, "content": None}, "messages[1].content: is missing") for role in ("user", "system", "tool")),
    (
        {"role": "assistant", "content": None, "tool_calls": []},
        "messages[1].content: is missing, and so are tool_calls",
    ),
    ({"role": "assistant", "reasoning": "hm"}, "messages[1].content: is missing, and so are tool_calls"),
    ({"role": "user", "content": [TEXT, TEXT, {"type": "text"}]}, "messages[1].content[2].text: is missing"),
    ({"role": "user", "content": [TEXT, {"type": "image_url"}]}, 'messages[1].content[1].type: must be "text"'),
    ({"role": "user", "content": [{"text": "a"}]}, 'messages[1].content[0].type: must be "text"'),
    ({**CALLS, "tool_calls": [CALL, {**CALL, "function": {}}]}, "messages[1].tool_calls[1].function.name: is missing"),
    (
        {**CALLS, "tool_calls": [{"function": {"name": ""}}]},
        "messages[1].tool_calls[0].function.name: must be a string",
    ),
    (
        {**CALLS, "tool_calls": [CALL, {"function": {"name": "f", "arguments": '{"a": '}}]},
        'messages[1].tool_calls[1].function.arguments: must be JSON text; got "{\\"a\\": "',
    ),
    (
        {**CALLS, "tool_calls": [CALL, {"function": {"name": "f", "arguments": '{"a": 1e999}'}}]},
        'messages[1].tool_calls[1].function.arguments: has a number that is too large, in "{\\"a\\": 1e999}"; send',
    ),
    ({**USER, "audio": {}}, "messages[1].audio: is not served"),
    ({**USER, "function_call": {}}, "messages[1].function_call: is not served"),
    ({**USER, "role": "function"}, 'messages[1].role: "function" is not served'),
    ({"role": "assistant", "content": "a", "refusal": "b"}, "messages[1].refusal: a message has either"),
]


@pytest.mark.parametrize("path", [CHAT, TOKENIZE])
@pytest.mark.parametrize(("message", "refusal"), WRONG_MESSAGES, ids=str)
async def test_a_wrong_message_of_a_chat_is_refused_with_its_path(
    client: Any, engine: FakeEngine, path: str, message: dict[str, Any], refusal: str
) -> None:
    error = await refused(client, path, {"messages": [USER, message]})
    assert error["message"].startswith(refusal)
    assert error["param"] == "messages"
    assert engine.submitted == []


BLOCKS = [{"type": "text", "text": "a"}, {"type": "tool_use", "id": "t", "name": "f", "input": {}}]


def turns(role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    """Behind a question and a use of a tool."""
    messages = [USER, {"role": "assistant", "content": BLOCKS}, {"role": role, "content": list(blocks)}, USER]
    return {"max_tokens": 5, "messages": messages}


OTHERS: list[tuple[str, dict[str, Any], str]] = [
    (MESSAGES, turns("user", TEXT, {"type": "image"}), 'messages[2].content[1].type: must be "text" or "tool_result"'),
    (MESSAGES, turns("user", *BLOCKS), 'messages[2].content[1].type: must be "text" or "tool_result" here; got "tool_'),
    (MESSAGES, turns("user", {"type": "tool_result"}), "messages[2].content[0].tool_use_id: is missing"),
    (
        MESSAGES,
        turns("user", {"type": "tool_result", "tool_use_id": "x"}),
        'messages[2].content[0].tool_use_id: no tool_use before it has the id "x"; the last ones are "t"',
    ),
    (
        MESSAGES,
        turns("user", {"type": "tool_result", "tool_use_id": "t", "content": [TEXT, {"type": "text"}]}),
        "messages[2].content[0].content[1].text: is missing",
    ),
    (MESSAGES, turns("assistant", TEXT, {"type": "tool_use", "name": "f"}), "messages[2].content[1].id: is missing"),
    (MESSAGES, turns("assistant", {"type": "tool_result"}), "messages[2].content[0].type: must be"),
    (MESSAGES, turns("system", TEXT, {"type": "thinking"}), 'messages[2].content[1].type: must be "text" here'),
    (MESSAGES, turns("tool", TEXT), 'messages[2].role: must be "user", "assistant" or "system"; got "tool"; results'),
    (RESPONSES, {"input": [USER, {"content": "a"}]}, "input[1].role: must be"),
    (RESPONSES, {"input": [USER, {"role": "user", "content": [{"text": "a"}]}]}, "input[1].content[0].type: must be"),
    (RESPONSES, {"input": [USER, {"type": "function_call_output", "output": ""}]}, "input[1].call_id: is missing"),
    (MESSAGES, {"max_tokens": 5, "messages": [USER, {"role": "assistant"}, USER]}, "messages[1].content: is missing"),
    (MESSAGES, {"max_tokens": 5, "messages": [{"role": "user", "content": None}]}, "messages[0].content: must be"),
    (RESPONSES, {"input": [USER, {"role": "user"}]}, "input[1].content: is missing"),
    (RESPONSES, {"input": [USER, {"role": "system", "content": None}]}, "input[1].content: is missing"),
    (RESPONSES, {"input": [USER, {"role": "assistant", "type": "message"}]}, "input[1].content: is missing"),
    (
        RESPONSES,
        {"input": [USER, {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{"}]},
        'input[1].arguments: must be JSON text; got "{"',
    ),
    (
        RESPONSES,
        {"input": [USER, {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"n": -1e999}'}]},
        "input[1].arguments: has a number that is too large",
    ),
]


@pytest.mark.parametrize(("path", "body", "refusal"), OTHERS, ids=str)
async def test_a_message_of_another_api_without_content_is_refused_with_its_path(
    client: Any, path: str, body: dict[str, Any], refusal: str
) -> None:
    assert (await refused(client, path, body))["message"].startswith(refusal)


@pytest.mark.parametrize("content", ["", [], [{"type": "text", "text": ""}]])
@pytest.mark.parametrize("role", ["user", "system", "assistant"])
async def test_an_empty_text_is_content(client: Any, role: str, content: Any) -> None:
    message = {"role": role, "content": content}
    assert (await client.post(CHAT, json={"messages": [USER, message]})).status == 200
    assert (await client.post(TOKENIZE, json={"messages": [USER, message]})).status == 200
    assert (await client.post(RESPONSES, json={"input": [USER, {**message, "content": ""}]})).status == 200
    body = {"max_tokens": 5, "messages": [{**message, "content": ""}, USER]}
    assert (await client.post(MESSAGES, json=body)).status == 200


async def test_calls_and_refusals_take_the_place_of_content(client: Any) -> None:
    result = {"role": "tool", "tool_call_id": "c", "content": "5"}
    refusal = {"role": "assistant", "content": None, "refusal": "no"}
    assert (await client.post(CHAT, json={"messages": [USER, CALLS, result, refusal, USER]})).status == 200


@pytest.mark.parametrize("offered", [{}, {"tools": TOOLS}])
async def test_an_answer_without_text_and_calls_can_be_sent_back(
    connect: Any, tool_engine: FakeEngine, offered: dict[str, Any]
) -> None:
    tool_engine.text = "!"  # the last token stops and is not shown
    client = await connect(tool_engine)
    body = {"messages": [USER], **offered}
    message = (await (await client.post(CHAT, json=body)).json())["choices"][0]["message"]
    assert message["content"] == ""
    deltas = await deltas_of(client, body)
    assert [delta["content"] for delta in deltas if "content" in delta] == [""]
    again = {**body, "messages": [USER, message, USER]}
    assert (await client.post(CHAT, json=again)).status == 200


async def test_an_answer_of_calls_alone_has_null_as_content(connect: Any, tool_engine: FakeEngine) -> None:
    tool_engine.text = '<tool_call>{"name": "f", "arguments": {}}</tool_call>!'
    client = await connect(tool_engine)
    body = {"messages": [USER], "tools": TOOLS}
    message = (await (await client.post(CHAT, json=body)).json())["choices"][0]["message"]
    assert (message["content"], len(message["tool_calls"])) == (None, 1)
    deltas = await deltas_of(client, body)
    assert not any("content" in delta for delta in deltas)
    again = {**body, "messages": [USER, message, USER]}
    assert (await client.post(CHAT, json=again)).status == 200


async def refused(client: Any, path: str, body: dict[str, Any]) -> Any:
    response = await client.post(path, json=body)
    assert response.status == 400, await response.text()
    return (await response.json())["error"]


async def deltas_of(client: Any, body: dict[str, Any]) -> list[dict[str, Any]]:
    response = await client.post(CHAT, json={**body, "stream": True})
    *events, done, _ = (await response.text()).split("\n\n")
    assert done == "data: [DONE]"
    return [json.loads(event.removeprefix("data: "))["choices"][0]["delta"] for event in events]
