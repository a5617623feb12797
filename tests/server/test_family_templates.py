"""Templates of several families: tools, calls, results and thoughts of earlier turns are rendered, and answers read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import family_templates
import pytest
from fake_engine import FakeEngine
from family_templates import tokenizer_of

from specserve_server.templates.model_template import read_model_template
from specserve_server.tools.formats import form_of

if TYPE_CHECKING:
    from pathlib import Path

CHAT = "/v1/chat/completions"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
ARGUMENTS = {"city": "Paris", "days": 2}
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "weather", "arguments": json.dumps(ARGUMENTS)},
}
TURNS = [
    {"role": "user", "content": "q"},
    {"role": "assistant", "content": "Wait.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
]
FORMS = {
    "HARMONY": ("harmony", '{"city": "Paris", "days": 2}<|call|>'),
    "GRANITE": ("granite", 'Wait.\n<|tool_call|>[{"name": "weather", "arguments": {"city": "Paris", "days": 2}}]'),
    "SMOLLM3": ("hermes", 'Wait.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Paris", "days": 2}}\n'),
    "PHI4_MINI": ("phi4-mini", 'Wait.\n<|tool_call|>[{"name": "weather", "arguments": {"city": "Paris", "days": 2}}]'),
    "OLMO3": ("olmo3", 'Wait.<function_calls>weather(city="Paris", days=2)</function_calls>'),
    "QWEN3_CODER": ("qwen3-coder", "<function=weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n2\n"),
    "GEMMA4": ("gemma4", '<|tool_call>call:weather{city:<|"|>Paris<|"|>,days:2}<tool_call|>Wait.'),
}  # fmt: skip
BEFORE_AN_ANSWER = {"harmony": "<|channel|>final<|message|>", "olmo3": "hm</think>"}
"""OLMo's prompt has begun to think."""


async def ask(client: Any, **fields: Any) -> Any:
    response = await client.post(CHAT, json={"messages": TURNS, **fields})
    assert response.status == 200, await response.text()
    return (await response.json())["choices"][0]


def prompt_of(engine: FakeEngine) -> str:
    return engine.tokenizer.decode(engine.submitted[-1].prompt_token_ids, skip_special_tokens=False)


@pytest.mark.parametrize("family", FORMS)
async def test_earlier_calls_are_in_the_prompt_as_the_model_writes_them(
    connect: Any, tmp_path: Path, family: str
) -> None:
    form, written = FORMS[family]
    tokenizer = tokenizer_of(tmp_path, getattr(family_templates, family), form)
    found = form_of(read_model_template(tokenizer.path)).form
    assert found is not None
    assert found.name == form
    prefix = BEFORE_AN_ANSWER.get(form, "")
    engine = FakeEngine(tokenizer, text=prefix + found.written("weather", ARGUMENTS) + "#", max_model_len=4096)
    engine.reason = "stop"
    message = (await ask(await connect(engine), tools=[TOOL]))["message"]
    prompt = prompt_of(engine)
    assert written in prompt
    assert "weather" in prompt.partition(written)[0], "the tool is listed"
    assert "sunny" in prompt.partition(written)[2], "the result comes behind its call"
    (call,) = message["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("weather", ARGUMENTS)
    assert message["content"] in (None, "")


@pytest.mark.parametrize("family", FORMS)
async def test_without_tools_the_template_sees_none(connect: Any, tmp_path: Path, family: str) -> None:
    form, _ = FORMS[family]
    engine = FakeEngine(tokenizer_of(tmp_path, getattr(family_templates, family), form), max_model_len=4096)
    await ask(await connect(engine), messages=TURNS[:1])
    assert "weather" not in prompt_of(engine)


async def test_phi_4_minis_tools_join_a_system_message_that_there_is(connect: Any, tmp_path: Path) -> None:
    engine = FakeEngine(tokenizer_of(tmp_path, family_templates.PHI4_MINI, "phi4-mini"), max_model_len=4096)
    client = await connect(engine)
    system = {"role": "system", "content": "Be short."}
    await ask(client, messages=[system, *TURNS], tools=[TOOL])
    assert prompt_of(engine).startswith('<|system|>Be short.<|tool|>[{"name": "weather", ')
    await ask(client, tools=[TOOL])
    assert prompt_of(engine).startswith('<|system|><|tool|>[{"name": "weather", ')


THOUGHTS = (
    # template, variables, answer, reasoning, content
    ("GEMMA4", {"enable_thinking": True}, "<|channel>thought\nhm<channel|>Hi", "hm", "Hi"),
    ("GEMMA4", {}, "Hi", "", "Hi"),
    ("SMOLLM3", {}, "<think>\nhm\n</think>\nHi", "hm\n", "Hi"),
    ("SMOLLM3", {"enable_thinking": False}, "Hi", "", "Hi"),
    ("OLMO3", {}, "hm</think>Hi", "hm", "Hi"),
    ("GRANITE", {"thinking": True}, "<think>hm</think>\n<response>Hi</response>", "hm", "Hi"),
    ("GRANITE", {"thinking": True}, "<think>hm</think><response>Hi </response> you</response> \n", "hm",
     "Hi </response> you"),
    ("GRANITE", {"thinking": True}, "<think>hm</think>Hi</response>", "hm", "Hi</response>"),
    ("GRANITE", {"thinking": True}, "<think>hm</think><response>Hi</resp", "hm", "Hi</resp"),
    ("GRANITE", {"thinking": True}, "<think>hm</think><resp", "hm", "<resp"),
    ("GRANITE", {}, "Hi", "", "Hi"),
    ("QWEN3_CODER", {}, "<think>Hi", "", "<think>Hi"),
)  # fmt: skip


@pytest.mark.parametrize(("family", "variables", "text", "reasoning", "content"), THOUGHTS)
@pytest.mark.parametrize("width", [1, 999])
async def test_thoughts_are_apart_from_the_answer(
    connect: Any, tmp_path: Path, family: str, variables: dict[str, Any], text: str, reasoning: str, content: str,
    width: int,
) -> None:  # fmt: skip
    tokenizer = tokenizer_of(tmp_path, getattr(family_templates, family), FORMS[family][0])
    client = await connect(FakeEngine(tokenizer, text=text, width=width, max_model_len=4096))
    message = (await ask(client, messages=TURNS[:1], chat_template_kwargs=variables))["message"]
    assert (message.get("reasoning_content") or "", message["content"]) == (reasoning, content)


async def test_the_effort_turns_thoughts_on_and_off(connect: Any, tmp_path: Path) -> None:
    engine = FakeEngine(tokenizer_of(tmp_path, family_templates.GEMMA4, "gemma4"), max_model_len=4096)
    client = await connect(engine)
    for effort, begins in (("high", "<|turn>model\n"), ("none", "<|turn>model\n<|channel>thought\n<channel|>")):
        await ask(client, messages=TURNS[:1], reasoning_effort=effort)
        assert prompt_of(engine).endswith(begins)


async def test_a_call_of_gemma_ends_where_its_result_would_begin(connect: Any, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path, family_templates.GEMMA4, "gemma4")
    engine = FakeEngine(tokenizer, max_model_len=4096)
    client = await connect(engine)
    await ask(client, tools=[TOOL])
    stop = tokenizer.encode("<|tool_response>", add_special_tokens=False)
    assert engine.submitted[-1].params.stop_token_ids == tuple(stop)
    await ask(client, messages=TURNS[:1])
    assert engine.submitted[-1].params.stop_token_ids == ()
