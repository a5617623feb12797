"""--tool-form: a model whose template has no place for tools borrows a form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fake_engine import FakeEngine

from specserve.errors import ConfigError
from specserve.text.tokenizer import HfTokenizer
from specserve_server.config import TOOL_FORMS, ServerConfig
from specserve_server.tools.formats import FORMATS

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }};{% endfor %}"
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('none') }}{% endif %}" + PLAIN
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
TURNS: list[dict[str, Any]] = [
    {"role": "user", "content": "q"},
    {"role": "assistant", "content": "Well.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c", "content": "r1"},
    {"role": "user", "content": "go on"},
]


def engine_of(path: Path, template: str) -> FakeEngine:
    from tiny_tokenizer import write_model_dir

    write_model_dir(path, template)
    return FakeEngine(HfTokenizer.from_dir(path), reason="stop", max_model_len=4096)


async def ask(client: Any, path: str = "/v1/chat/completions", **fields: Any) -> Any:
    response = await client.post(path, json={"messages": TURNS, "tools": [TOOL], **fields})
    assert response.status == 200, await response.text()
    return await response.json()


@pytest.mark.parametrize("name", FORMATS)
async def test_tools_are_described_and_calls_read_in_the_borrowed_form(connect: Any, tmp_path: Path, name: str) -> None:
    engine, form = engine_of(tmp_path, PLAIN), FORMATS[name]
    written = form.written("f", {"a": 1})
    engine.text = f"{written}!"
    client = await connect(engine, tool_form=name)
    (choice,) = (await ask(client))["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert (call["function"], choice["message"]["content"]) == ({"name": "f", "arguments": '{"a": 1}'}, None)
    prompt = engine.tokenizer.decode(engine.submitted[-1].prompt_token_ids)
    before, after = form.result_marks
    assert prompt.startswith("system: You may call these functions")
    assert '"name": "f"' in prompt
    assert form.begin("NAME") in prompt
    assert prompt.endswith(f";user: q;assistant: Well.\n{written};user: {before}r1{after}\ngo on;")
    counted = await ask(client, "/tokenize")
    assert counted["count"] == len(engine.submitted[-1].prompt_token_ids)


async def test_a_template_without_system_messages_has_them_in_the_first_of_the_user(
    connect: Any, tmp_path: Path
) -> None:
    engine = engine_of(tmp_path, NO_SYSTEM)
    await ask(await connect(engine, tool_form="hermes"))
    assert engine.tokenizer.decode(engine.submitted[-1].prompt_token_ids).startswith("user: You may call")


async def test_the_refusal_without_it_names_the_option(connect: Any, tmp_path: Path) -> None:
    client = await connect(engine_of(tmp_path, PLAIN))
    response = await client.post("/v1/chat/completions", json={"messages": TURNS, "tools": [TOOL]})
    assert (response.status, "--tool-form" in await response.text()) == (400, True)


def test_an_unknown_form_is_refused_with_those_that_there_are() -> None:
    assert tuple(FORMATS) == TOOL_FORMS
    with pytest.raises(ConfigError, match=r"tool_form.*mistral-v11"):
        ServerConfig(tool_form="qwen")
