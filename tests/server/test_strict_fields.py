"""A strict server looks within fields: an unknown name is refused with its path, and free values have any names."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from test_codex_tools import TOOLS as CODEX_TOOLS

if TYPE_CHECKING:
    from fake_engine import FakeEngine

COMPLETIONS, CHAT, TOKENIZE = "/v1/completions", "/v1/chat/completions", "/tokenize"
MESSAGES, COUNT, RESPONSES = "/v1/messages", "/v1/messages/count_tokens", "/v1/responses"
USER = {"role": "user", "content": "a"}
WHOLE: dict[str, dict[str, Any]] = {
    COMPLETIONS: {"prompt": "a"},
    CHAT: {"messages": [USER]},
    TOKENIZE: {"messages": [USER]},
    MESSAGES: {"messages": [USER], "max_tokens": 5},
    COUNT: {"messages": [USER]},
    RESPONSES: {"input": "a"},
}
ANY = {"any": {"name": [1e999]}}
SCHEMA = {"type": "object", "properties": {"ror": {"x-vendor": {"naem": 1}}}}
RESULT = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "txet": "a"}]}

WRONG: list[tuple[str, dict[str, Any], str, str]] = [
    (COMPLETIONS, {"stream_options": {"include_usge": True}}, "stream_options.include_usge", "include_usage"),
    (COMPLETIONS, {"speculation": {"enable": False}}, "speculation.enable", "enabled"),
    (COMPLETIONS, {"structured_outputs": {"regx": "a"}}, "structured_outputs.regx", "regex"),
    (CHAT, {"messages": [USER, {**USER, "contnet": "b"}]}, "messages[1].contnet", "content"),
    (TOKENIZE, {"messages": [USER, {**USER, "contnet": "b"}]}, "messages[1].contnet", "content"),
    (CHAT, {"messages": [{"role": "user", "content": [{"typ": "text"}]}]}, "messages[0].content[0].typ", "type"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "txt": ""}]}]},
     "messages[0].content[0].txt", "text"),
    (CHAT, {"messages": [{**USER, "tool_calls": [{"function": {"name": "f", "argument": ""}}]}]},
     "messages[0].tool_calls[0].function.argument", "arguments"),
    (CHAT, {"tools": [{"type": "function", "function": {"name": "f", "parameter": {}}}]},
     "tools[0].function.parameter", "parameters"),
    (CHAT, {"tool_choice": {"type": "function", "function": {"name": "f", "nam": 1}}}, "tool_choice.function.nam",
     "name"),
    (CHAT, {"response_format": {"type": "json_schema", "json_schema": {"schem": {}}}},
     "response_format.json_schema.schem", "schema"),
    (MESSAGES, {"messages": [{"role": "user", "content": [{"type": "text", "txet": "a"}]}]},
     "messages[0].content[0].txet", "text"),
    (MESSAGES, {"messages": [{"role": "user", "content": [RESULT]}]}, "messages[0].content[0].content[0].txet", "text"),
    (MESSAGES, {"system": [{"type": "text", "text": "a", "cache_controll": {}}]}, "system[0].cache_controll",
     "cache_control"),
    (MESSAGES, {"tools": [{"name": "f", "input_shema": {}}]}, "tools[0].input_shema", "input_schema"),
    (COUNT, {"tool_choice": {"type": "auto", "disable_parallel_tool": True}}, "tool_choice.disable_parallel_tool",
     "disable_parallel_tool_use"),
    (MESSAGES, {"thinking": {"type": "disabled", "budget_token": 5}}, "thinking.budget_token", "budget_tokens"),
    (MESSAGES, {"output_config": {"efort": "low"}}, "output_config.efort", "effort"),
    (RESPONSES, {"input": [{**USER, "contents": "a"}]}, "input[0].contents", "content"),
    (RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_text", "txet": "a"}]}]},
     "input[0].content[0].txet", "text"),
    (RESPONSES, {"tools": [{"type": "function", "name": "f", "parametres": {}}]}, "tools[0].parametres", "parameters"),
    (RESPONSES, {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "custom", "fromat": 1}]}]},
     "tools[0].tools[0].fromat", "format"),
    (RESPONSES, {"text": {"format": {"type": "text", "strct": True}}}, "text.format.strct", "strict"),
    (RESPONSES, {"reasoning": {"efort": "low"}}, "reasoning.efort", "effort"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "fields", "place", "nearest"), WRONG, ids=lambda value: str(value)[:60])
async def test_an_unknown_name_within_a_field_is_refused_with_its_path_and_the_nearest_one(
    connect: Any, engine: FakeEngine, path: str, fields: dict[str, Any], place: str, nearest: str
) -> None:
    client = await connect(engine, strict_fields=True)
    response = await client.post(path, json=WHOLE[path] | fields)
    error = (await response.json())["error"]
    start = f"{place}: no such field, and this server runs with --strict-fields; "
    assert (response.status, error["message"]) == (400, f"{start}did you mean {nearest}?")
    if path not in (MESSAGES, COUNT):  # their errors have no more fields
        assert (error["param"], error["code"]) == (place.partition("[")[0].partition(".")[0], "unknown_field")
    assert engine.submitted == []


async def test_a_name_like_no_other_is_told_those_that_there_are_and_is_cut(connect: Any, engine: FakeEngine) -> None:
    client = await connect(engine, strict_fields=True)
    response = await client.post(COMPLETIONS, json={"prompt": "a", "speculation": {"q" * 10**6: 1}})
    assert (await response.json())["error"]["message"] == (
        f"speculation.{'q' * 64}: no such field, and this server runs with --strict-fields; there are enabled, "
        "max_draft_tokens, drafters."
    )


CALL = {"id": "c", "index": 0, "type": "function", "function": {"name": "f", "arguments": '{"ror": 1}'}}
SERVED: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"metadata": ANY, "chat_template_kwargs": {}, "stream_options": {"include_obfuscation": False}}),
    (CHAT, {"messages": [USER, {"role": "assistant", "content": None, "refusal": None, "annotations": [ANY],
     "audio": None, "function_call": None, "tool_calls": [CALL], "provider_specific_fields": ANY}, USER]}),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": ANY}]}]}),
    (CHAT, {"tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": None}}]}),
    (MESSAGES, {"metadata": ANY, "tools": [{"name": "f", "input_schema": SCHEMA, "cache_control": ANY}]}),
    (MESSAGES, {"messages": [USER, {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "b", "signature": "c"}, {"type": "redacted_thinking", "data": "d"},
        {"type": "text", "text": "e", "citations": None},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"naem": 1}},
     ]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": []}]}]}),
    (RESPONSES, {"input": [{"type": "message", "id": "m", "status": "completed", "role": "assistant", "phase": "final",
     "content": [{"type": "output_text", "text": "a", "annotations": [], "logprobs": []}]}, USER]}),
    (RESPONSES, {"input": [{"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "a"}],
     "encrypted_content": "b"}, USER], "reasoning": {"summary": "auto"}}),
    (RESPONSES, {"tools": CODEX_TOOLS}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "fields"), SERVED, ids=lambda value: str(value)[:60])
async def test_what_sdks_write_and_values_of_any_form_are_served(
    connect: Any, tool_engine: FakeEngine, path: str, fields: dict[str, Any]
) -> None:
    tool_engine.max_model_len = 4096
    client = await connect(tool_engine, strict_fields=True)
    data = json.dumps(WHOLE[path] | fields).replace("Infinity", "1e999")
    response = await client.post(path, data=data)
    assert response.status == 200, await response.text()


OTHER_TYPES: list[tuple[str, dict[str, Any], str]] = [
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": ANY}]}]}, 'must be "text"'),
    (MESSAGES, {"messages": [{"role": "user", "content": [{"type": "image", "source": ANY}]}]}, 'got "image"'),
    (MESSAGES, {"tools": [{"type": "web_search_20250305", "name": "w", "max_uses": 5}]}, "not served"),
    (RESPONSES, {"input": [{"type": "computer_call", "action": ANY}]}, 'got "computer_call"'),
    (RESPONSES, {"tool_choice": {"type": "mcp", "server_label": "s"}}, "tool_choice"),
]


@pytest.mark.parametrize(("path", "fields", "message"), OTHER_TYPES, ids=lambda value: str(value)[:60])
async def test_what_is_not_served_is_refused_by_its_type_not_by_its_names(
    connect: Any, engine: FakeEngine, path: str, fields: dict[str, Any], message: str
) -> None:
    client = await connect(engine, strict_fields=True)
    data = json.dumps(WHOLE[path] | fields).replace("Infinity", "1e999")
    error = (await (await client.post(path, data=data)).json())["error"]["message"]
    assert message in error
    assert "no such field" not in error


@pytest.mark.parametrize(("path", "fields"), [(path, fields) for path, fields, *_ in WRONG[:3]], ids=str)
async def test_another_server_ignores_unknown_names_within_fields(client: Any, path: str, fields: Any) -> None:
    if "structured_outputs" not in fields:  # which asks for no form at all then
        assert (await client.post(path, json=WHOLE[path] | fields)).status == 200


async def test_blocks_within_blocks_without_end_are_refused_soon(connect: Any, engine: FakeEngine) -> None:
    client = await connect(engine, strict_fields=True)
    block = '{"type": "tool_result", "tool_use_id": "t", "content": ['
    data = f'{{"max_tokens": 5, "messages": [{{"role": "user", "content": [{block * 200}{"]}" * 200}]}}]}}'
    response = await client.post(MESSAGES, data=data)
    assert response.status == 400
    assert "no tool_use before it" in (await response.json())["error"]["message"]
