"""Bodies as strangers write them, with wrong types, nesting, names and roles: the whole answer says what to change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fake_engine import FakeEngine

COMPLETIONS, CHAT, MESSAGES, RESPONSES = "/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses"
TOKENIZE, DETOKENIZE = "/tokenize", "/detokenize"
USER = [{"role": "user", "content": "a"}]
TOOL = {"type": "function", "function": {"name": "f"}}
USE = {"type": "tool_use", "id": "t", "name": "f", "input": "x"}
USE_OF_TEXT = [*USER, {"role": "assistant", "content": [USE]}]


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


BODIES: list[tuple[str, dict[str, Any], str]] = [
    (CHAT, {},
     "messages is required: a list of {role, content}."),
    (CHAT, {"message": USER},
     "message: there is no such field here; did you mean messages?"),
    (CHAT, {"messages": "hi"},
     'messages: must be a list of at most 4096 objects with "role", "content", "name", "tool_calls" and others; got '
     '"hi".'),
    (CHAT, {"messages": [USER]},
     'messages[0]: must be an object with "role", "content", "name", "tool_calls" and others; got '
     '[{"role":"user","content":"a"}].'),
    (CHAT, {"messages": [{"role": "usr", "content": "a"}]},
     'messages[0].role: the roles are "user", "assistant", "system", "developer", "tool"; got "usr"; did you mean '
     'user?'),
    (CHAT, {"messages": [{"role": "Assistant", "content": "a"}]},
     'messages[0].role: the roles are "user", "assistant", "system", "developer", "tool"; got "Assistant"; did you '
     'mean assistant?'),
    (CHAT, {"messages": [{"role": "human", "content": "a"}]},
     'messages[0].role: the roles are "user", "assistant", "system", "developer", "tool"; got "human"; did you mean '
     'user?'),
    (CHAT, {"messages": [{"role": "user", "content": {"text": "a"}}]},
     'messages[0].content: must be a string or a list of objects with "type", "text"; got {"text":"a"}.'),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}]},
     'messages[0].content[0].type: must be "text", since other parts are not served; got "input_text".'),
    (CHAT, {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}]},
     'messages[0].tool_calls[0].function.arguments: must be a string of JSON, such as "{}"; got {"a":1}.'),
    (CHAT, {"messages": USER, "tools": TOOL},
     'tools: must be a list of at most 128 objects with "type", "function"; got '
     '{"type":"function","function":{"name":"f"}}.'),
    (CHAT, {"messages": USER, "tools": [{"name": "f"}]},
     'tools[0].type: is missing; it must be "function".'),
    (CHAT, {"messages": USER, "tools": [TOOL], "tool_choice": "f"},
     'tool_choice: must be "auto", "none", "required" or an object with "type", "function"; got "f".'),
    (CHAT, {"messages": USER, "tools": [TOOL], "tool_choice": named("g")},
     'tool_choice: no tool is called "g"; tools has "f".'),
    (CHAT, {"messages": USER, "tools": [TOOL, TOOL]},
     'tools: two have the same name, "f"; rename one of them.'),
    (CHAT, {"messages": USER, "tool_choice": "required"},
     "tool_choice: a call is required, which needs tools; send tools, or leave out tool_choice."),
    (CHAT, {"messages": USER, "max_tokens": 0},
     "max_tokens: must be at least 1; got 0. Leave it out for the rest of the context."),
    (CHAT, {"messages": USER, "max_tokens": "100"},
     'max_tokens: must be an integer between 0 and 2147483647; got "100".'),
    (CHAT, {"messages": USER, "max_tokens": 10**20},
     "max_tokens: must be an integer between 0 and 2147483647; got 100000000000000000000."),
    (CHAT, {"messages": USER, "response_format": {"type": "json"}},
     'response_format.type: must be "json_object", "json_schema", "structural_tag" or "text"; got "json".'),
    (CHAT, {"messages": USER, "system": "be kind"},
     "system: there is no such field here: send messages that begin with one of the role system."),
    (CHAT, {"messages": USER, "model": "gpt-4"},
     'no model "gpt-4" is served; /v1/models lists them.'),
    (COMPLETIONS, {"prompt": None},
     "prompt is required: a string, a list of strings, a list of token ids, or a list of such lists."),
    (COMPLETIONS, {"promt": "a"},
     "promt: there is no such field here; did you mean prompt?"),
    (COMPLETIONS, {"prompt": ["a", 5]},
     "prompt: token ids stand beside texts or lists; give one list of ids, or a list of texts and lists of ids."),
    (COMPLETIONS, {"prompt": "a", "max_tokens": 0},
     "max_tokens: must be at least 1, or 0 with echo or prompt_logprobs; got 0."),
    (COMPLETIONS, {"prompt": "a", "best_of": 3},
     "best_of: more than n is not served; got 3 with n 1; leave it out."),
    (COMPLETIONS, {"prompt": "a", "stop": [""]},
     "stop: an empty string would stop everything; leave it out."),
    (COMPLETIONS, {"prompt": "a", "instructions": "b"},
     "instructions: there is no such field here: send prompt."),
    (MESSAGES, {"messages": USER},
     "max_tokens is required: how many tokens the answer may have."),
    (MESSAGES, {"max_tokens": 5, "messages": [{"role": "assistant", "content": "a"}]},
     "messages[0].role: the last message must be the user's; to begin the answer for the model is not served."),
    (MESSAGES, {"max_tokens": 5, "messages": USER, "tool_choice": "auto"},
     'tool_choice: must be an object with "type", "name", "disable_parallel_tool_use"; got "auto".'),
    (MESSAGES, {"max_tokens": 5, "messages": USER, "tool_choice": {"type": "tool"}},
     'tool_choice: type tool needs the name of a tool, and no other type has one; got "tool" without a name.'),
    (MESSAGES, {"max_tokens": 5, "messages": [*USE_OF_TEXT, *USER]},
     'messages[1].content[0].input: must be an object, as the answer had it; got "x".'),
    (MESSAGES, {"max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
     'messages[0].content[0].type: must be "text" or "tool_result" here; got "image"; only text is served.'),
    (RESPONSES, {"inputs": "a"},
     "inputs: there is no such field here; did you mean input?"),
    (RESPONSES, {"input": []},
     "input: it has no items; give at least one."),
    (RESPONSES, {"input": [{"type": "item_reference"}]},
     "input[0].id: is missing; an item_reference has the id of an output item that is stored."),
    (RESPONSES, {"input": [{"type": "item_reference", "id": "m"}]},
     'input[0].id: no item "m" is stored; send the item itself, and store false if you keep the conversation.'),
    (RESPONSES, {"input": "a", "tools": [TOOL]},
     "tools[0].name: is missing; it must be a name of 1 to 64 letters, digits, points, hyphens and underscores, and "
     "stands beside type: this API has no function around it."),
    (RESPONSES, {"input": "a", "tool_choice": named("f")},
     'tool_choice: type "function" without a function\'s name is not served; send none, auto, required or '
     '{"type": "function", "name": ...}.'),
    (TOKENIZE, {"text": "a"},
     "prompt or messages is required: a string, or a list of {role, content}."),
    (TOKENIZE, {"prompt": "a", "messages": USER},
     "messages: give either prompt or messages; got both."),
    (DETOKENIZE, {"token_ids": [1]},
     "token_ids: there is no such field here; did you mean tokens?"),
    (DETOKENIZE, {},
     "tokens is required: a list of token ids, such as [1, 2]."),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "message"), BODIES, ids=lambda value: str(value)[:60])
async def test_a_strangers_body_is_answered_with_what_to_change(
    connect: Any, tool_engine: FakeEngine, path: str, body: dict[str, Any], message: str
) -> None:
    client = await connect(tool_engine)
    response = await client.post(path, json=body)
    assert 400 <= response.status < 500
    assert (await response.json())["error"]["message"] == message
    assert tool_engine.submitted == []


@pytest.mark.parametrize("role", ["ipython", "observation", "critic", "", "usher-in-chief"])
async def test_a_role_that_is_no_slip_is_left_to_the_template(client: Any, role: str) -> None:
    body = {"messages": [{"role": role, "content": "a"}]}
    assert (await client.post(CHAT, json=body)).status == 200


async def test_a_field_beside_the_one_that_a_body_is_about_may_have_any_name(client: Any) -> None:
    assert (await client.post(CHAT, json={"messages": USER, "message": USER})).status == 200
