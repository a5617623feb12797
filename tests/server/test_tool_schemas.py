"""The schema of a tool is an object on every API; another one is refused with its path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fake_engine import FakeEngine

CHAT, TOKENIZE, MESSAGES, RESPONSES = "/v1/chat/completions", "/tokenize", "/v1/messages", "/v1/responses"
COUNT = "/v1/messages/count_tokens"
USER = '"messages": [{"role": "user", "content": "a"}]'
FUNCTION = '{"type": "function", "function": {"name": "f%s", "parameters": %s}}'
CLIENT = '{"name": "f%s", "input_schema": %s}'
FLAT = '{"type": "function", "name": "f%s", "parameters": %s}'
APIS = {
    CHAT: ("tools[1].function.parameters", "{%s, %s}", USER, FUNCTION),
    TOKENIZE: ("tools[1].function.parameters", "{%s, %s}", USER, FUNCTION),
    MESSAGES: ("tools[1].input_schema", '{"max_tokens": 5, %s, %s}', USER, CLIENT),
    COUNT: ("tools[1].input_schema", "{%s, %s}", USER, CLIENT),
    RESPONSES: ("tools[1].parameters", "{%s, %s}", '"input": "a"', FLAT),
}
WRONG = {
    "5": 'must be a JSON schema, such as {"type": "object", "properties": {...}}; got 5.',
    '["a"]': 'must be a JSON schema, such as {"type": "object", "properties": {...}}; got ["a"].',
    '"{}"': 'must be a JSON schema, such as {"type": "object", "properties": {...}}; got "{}".',
    '{"maximum": 1e999}': "has a number that is too large.",
}


def body_of(path: str, schema: str) -> str:
    """Its second tool has the schema."""
    _, whole, conversation, tool = APIS[path]
    return whole % (conversation, f'"tools": [{tool % ("", "{}")}, {tool % (2, schema)}]')


@pytest.mark.parametrize("path", APIS)
@pytest.mark.parametrize("schema", WRONG)
async def test_a_schema_that_is_no_object_is_refused_with_its_path(
    connect: Any, tool_engine: FakeEngine, path: str, schema: str
) -> None:
    client = await connect(tool_engine)
    response = await client.post(path, data=body_of(path, schema))
    assert response.status == 400
    assert (await response.json())["error"]["message"] == f"{APIS[path][0]}: {WRONG[schema]}"


@pytest.mark.parametrize("path", APIS)
async def test_an_object_is_served(connect: Any, tool_engine: FakeEngine, path: str) -> None:
    client = await connect(tool_engine)
    response = await client.post(path, data=body_of(path, '{"type": "object"}'))
    assert response.status == 200, await response.text()
