"""Tools of the kinds that Codex offers: custom ones and namespaces are served, hosted ones left out with a warning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from named_events import named_events

if TYPE_CHECKING:
    from fake_engine import FakeEngine

PATH = "/v1/responses"
PATCH = '*** Begin Patch\n+"é"\n*** End Patch'
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: /x+/"}
TOOLS = [
    {"type": "function", "name": "shell", "parameters": {"type": "object"}},
    {"type": "web_search", "external_web_access": False},
    {"type": "custom", "name": "apply_patch", "description": "d", "format": GRAMMAR},
    {
        "type": "namespace",
        "name": "mcp__docs",
        "description": "d",
        "tools": [{"type": "function", "name": "find", "parameters": {"type": "object"}}, {"type": "later_kind"}],
    },
    {"type": "image_generation", "output_format": "png"},
]
WRITTEN = '{"input": "*** Begin Patch\\n+\\"é\\"\\n*** End Patch"}'
CUSTOM = f'<tool_call>{{"name": "apply_patch", "arguments": {WRITTEN}}}</tool_call>'
FIND = '<tool_call>{"name": "mcp__docs__find", "arguments": {"q": 1}}</tool_call>'


@pytest.fixture
async def client(connect: Any, tool_engine: FakeEngine) -> Any:
    tool_engine.text = f"{CUSTOM}{FIND}!"  # the last token stops and is not shown
    tool_engine.max_model_len = 4096
    return await connect(tool_engine)


async def respond(client: Any, **body: Any) -> Any:
    response = await client.post(PATH, json={"input": "a", "tools": TOOLS, **body})
    assert response.status == 200, await response.text()
    return await response.json()


def prompt_of(engine: FakeEngine) -> str:
    return engine.tokenizer.decode(engine.submitted[-1].prompt_token_ids)


async def test_custom_tools_and_namespaces_are_called(client: Any, tool_engine: FakeEngine) -> None:
    body = await respond(client)
    custom, function = body["output"]
    assert (custom["type"], custom["name"], custom["input"]) == ("custom_tool_call", "apply_patch", PATCH)
    assert "arguments" not in custom
    assert (function["type"], function["namespace"], function["name"]) == ("function_call", "mcp__docs", "find")
    assert function["arguments"] == '{"q": 1}'
    prompt = prompt_of(tool_engine)
    for part in ('"name": "shell"', '"name": "apply_patch"', "start: /x+/", '"name": "mcp__docs__find"'):
        assert part in prompt
    assert "web_search" not in prompt


async def test_kinds_that_are_left_out_are_named_in_a_warning(client: Any) -> None:
    body = await respond(client)
    assert [text.partition(" is not")[0] for text in body["warnings"]] == [
        'tools[1]: kind "web_search"',
        'tools[3].tools[1]: kind "later_kind"',
        'tools[4]: kind "image_generation"',
    ]
    assert [tool["type"] for tool in body["tools"]] == ["function", "custom", "namespace"]
    only = await respond(client, tools=[TOOLS[1]])
    assert (len(only["warnings"]), only["output"][0]["type"]) == (1, "message")
    assert "warnings" not in await respond(client, tools=TOOLS[:1])


async def test_the_events_of_a_custom_call_have_its_input(client: Any) -> None:
    events = await named_events(client, PATH, {"input": "a", "tools": TOOLS})
    kinds = [event["type"].removeprefix("response.") for event in events if event.get("output_index") == 0]
    names = ("custom_tool_call_input.delta", "custom_tool_call_input.done")
    assert kinds == ["output_item.added", *names, "output_item.done"]
    done = next(event for event in events if event["type"].endswith("input.done"))
    assert done["input"] == events[-1]["response"]["output"][0]["input"] == PATCH


async def test_a_conversation_goes_on_with_what_they_gave(client: Any, tool_engine: FakeEngine) -> None:
    first = await respond(client)
    custom, function = first["output"]
    results = [
        {"type": "custom_tool_call_output", "call_id": custom["call_id"], "output": "done"},
        {"type": "function_call_output", "call_id": function["call_id"], "output": "found"},
    ]
    await respond(client, input=results, previous_response_id=first["id"])
    stored = prompt_of(tool_engine)
    await respond(client, input=[{"role": "user", "content": "a"}, *first["output"], *results])
    assert prompt_of(tool_engine) == stored
    assert stored.endswith(f"{CUSTOM}{FIND}\ntool: done\ntool: found\n")


@pytest.mark.direct
async def test_a_choice_finds_its_tool(client: Any, tool_engine: FakeEngine) -> None:
    for choice, name in (
        ({"type": "custom", "name": "apply_patch"}, "apply_patch"),
        ({"type": "function", "name": "find"}, "mcp__docs__find"),
    ):
        await respond(client, tool_choice=choice)
        structure = tool_engine.submitted[-1].params.structured_output
        assert structure is not None
        assert f'{{\\"name\\": \\"{name}\\"' in structure.text
