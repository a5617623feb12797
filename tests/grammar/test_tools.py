"""Tools over HTTP: chosen, required or named, whole and streamed by the SDK; conversations go on with results."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from aiohttp.test_utils import TestClient, TestServer
from jsonschema import Draft202012Validator
from tool_templates import TEMPLATES

from specserve.config import EngineConfig
from specserve.engine.async_engine import AsyncEngine
from specserve_grammar.grammars import Grammars, load_tokenizer
from specserve_grammar.options import GrammarOptions
from specserve_server.app.application import make_app
from specserve_server.bodies.requests import ChatBody
from specserve_server.config import ServerConfig
from specserve_server.generation.structured_output import structured_output
from specserve_server.tools.formats import FORMATS, HERMES
from specserve_server.tools.structure import call_structure, offered_tools
from specserve_server.wire.decode_body import decode_body
from specserve_workbench.testing.requests import TOY_VOCAB
from specserve_workbench.testing.toy import write_checkpoint
from specserve_workbench.testing.toy_tokenizer import EOS_ID

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 8}, "unit": {"enum": ["celsius", "fahrenheit"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
COUNT = {
    "type": "object",
    "properties": {"n": {"type": "integer", "maximum": 9, "minimum": 0}},
    "required": ["n"],
    "additionalProperties": False,
}


def tool(name: str, parameters: Any, **more: Any) -> Any:
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


TOOLS = [tool("get_weather", WEATHER, description="the weather"), tool("count", COUNT)]
NAMED = {"type": "function", "function": {"name": "count"}}
SCHEMAS = {"get_weather": WEATHER, "count": COUNT}
MESSAGES: Any = [{"role": "user", "content": "the weather in Paris"}]


@pytest.fixture
async def connect(tmp_path):
    """`sdk = await connect("hermes")`: the SDK at a server of a toy model with that template."""
    opened: list[Any] = []

    async def connect(form: str, plugins: tuple[str, ...] = ("grammar", "ngram")) -> openai.AsyncOpenAI:
        model = write_checkpoint(tmp_path / form)
        settings = json.loads((model / "tokenizer_config.json").read_text())
        (model / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": TEMPLATES[form]}))
        config = EngineConfig(model=str(model), plugins=plugins, threads=1, kv_memory="64M", default_plugins=False)
        engine = await AsyncEngine.start(config)
        client: Any = TestClient(TestServer(make_app(engine, ServerConfig(served_model_name="toy"))))
        await client.start_server()
        sdk = openai.AsyncOpenAI(base_url=str(client.make_url("/v1")), api_key="x", max_retries=0)
        opened.extend((sdk, client))
        return sdk

    yield connect
    for each in opened:
        await each.close()


async def ask(sdk: openai.AsyncOpenAI, **fields: Any) -> Any:
    body = {"model": "toy", "messages": MESSAGES, "tools": TOOLS, "max_tokens": 400, "temperature": 0, **fields}
    return await sdk.chat.completions.create(**body)


@pytest.mark.parametrize("form", FORMATS)
async def test_required_and_named_tools_are_called_with_valid_arguments(form, connect):
    sdk = await connect(form)
    for choice, seed in (("required", 1), ("required", 2), (NAMED, 3)):
        answer = await ask(sdk, tool_choice=choice, temperature=1.0, seed=seed, parallel_tool_calls=False)
        (found,) = answer.choices
        (call,) = found.message.tool_calls
        Draft202012Validator(SCHEMAS[call.function.name]).validate(json.loads(call.function.arguments))
        assert found.message.content is None
        assert found.finish_reason == ("tool_calls" if choice == "required" else "stop")
        assert choice == "required" or call.function.name == "count"


@pytest.mark.parametrize("form", FORMATS)
async def test_a_stream_of_calls_is_the_whole(form, connect):
    sdk = await connect(form)
    fields = {"tool_choice": "required", "temperature": 1.0, "seed": 7, "parallel_tool_calls": False}
    whole = (await ask(sdk, **fields)).choices[0]
    calls: dict[int, list[str]] = {}
    reasons, texts = [], ""
    async for chunk in await ask(sdk, **fields, stream=True):
        (choice,) = chunk.choices
        reasons.append(choice.finish_reason)
        texts += choice.delta.content or ""
        for piece in choice.delta.tool_calls or []:
            if piece.id:
                assert piece.function.name
                calls[piece.index] = [piece.function.name, ""]
            calls[piece.index][1] += piece.function.arguments or ""
    expected = [[call.function.name, call.function.arguments] for call in whole.message.tool_calls]
    assert [*calls.values()] == expected
    assert (reasons[-1], texts) == ("tool_calls", "")
    assert set(reasons[:-1]) <= {None}


async def test_several_calls_come_where_they_are_allowed(connect):
    sdk = await connect("hermes")
    many = 0
    for seed in range(6):
        answer = await ask(sdk, tool_choice="required", temperature=1.5, seed=seed, max_tokens=300)
        many += len(answer.choices[0].message.tool_calls) > 1
    assert many


async def test_a_model_may_answer_in_text(connect):
    sdk = await connect("hermes")
    free = (await ask(sdk, tools=openai.omit, max_tokens=12)).choices[0].message
    assert free.tool_calls is None
    answer = (await ask(sdk, max_tokens=12)).choices[0]
    assert answer.message.content
    assert answer.message.tool_calls is None
    silent = (await ask(sdk, tool_choice="none", max_tokens=12)).choices[0].message
    assert silent.content == free.content


async def test_a_conversation_goes_on_with_the_results(connect):
    sdk = await connect("hermes")
    call = {"id": "call_1", "type": "function", "function": {"name": "count", "arguments": '{"n": 3}'}}
    messages = [
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "3"},
    ]
    assert (await ask(sdk, messages=messages, max_tokens=8)).usage.prompt_tokens > 100
    call["function"]["arguments"] = "{"
    with pytest.raises(openai.BadRequestError, match=r"function\.arguments: must be JSON text"):
        await ask(sdk, messages=messages)


async def test_without_the_plugin_a_tool_may_be_called_and_not_required(connect):
    sdk = await connect("hermes", plugins=())
    assert (await ask(sdk, max_tokens=8)).choices[0].message.content
    with pytest.raises(openai.BadRequestError, match="start it with --plugin grammar") as refusal:
        await ask(sdk, tool_choice="required")
    assert refusal.value.param == "tool_choice"


WRONG = (
    ({"tools": [TOOLS[0], TOOLS[0]]}, "tools", "two have the same name"),
    ({"tools": [tool("a b", {})]}, "tools", "must be a name of 1 to 64 letters"),
    ({"tools": [{"type": "x", "function": {"name": "f"}}]}, "tools", 'must be "function"'),
    ({"tool_choice": {"type": "function", "function": {"name": "nope"}}}, "tool_choice", 'no tool is called "nope"'),
    ({"tool_choice": "perhaps"}, "tool_choice", "perhaps"),
    ({"tools": [], "tool_choice": "required"}, "tool_choice", "needs tools"),
    ({"extra_body": {"structured_outputs": {"structural_tag": {"a": 1}}}}, "structured_outputs", "no structural_tag"),
    ({"tools": [tool("f", {"type": "x"}, strict=True)]}, "tools", "Invalid type: x"),
    ({"tools": [tool("f", {"type": "x"})], "tool_choice": "required"}, "tool_choice", "Invalid type: x"),
)  # fmt: skip


async def test_wrong_tools_are_refused_with_the_field_and_the_reason(connect):
    sdk = await connect("hermes")
    for fields, param, reason in WRONG:
        with pytest.raises(openai.BadRequestError) as refusal:
            await ask(sdk, **fields)
        assert refusal.value.param == param, fields
        assert reason in str(refusal.value), refusal.value


async def test_a_template_without_tools_is_said(connect):
    sdk = await connect("none")
    with pytest.raises(openai.BadRequestError, match="has no place for them") as refusal:
        await ask(sdk)
    assert refusal.value.param == "tools"


def called(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


FORMAT = {"type": "json_schema", "json_schema": {"name": "count", "schema": COUNT}}
TWO = f"{called('count', '{}')}\n{called('count', '{}')}"
ALLOWED: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("text", {}, "anything <b> at all"),
    ("a call of a tool that is not strict", {}, called("count", '{"what": ["ever"]}')),
    ("text and calls", {}, f"Let me see. {called('count', '{}')} and {called('get_weather', '{}')}."),
    ("text and the only call", {"parallel_tool_calls": False}, f"Let me see. {called('count', '{}')}"),
    ("a strict call", {"tools": [tool("count", COUNT, strict=True)]}, called("count", '{"n": 7}')),
    ("a required call", {"tool_choice": "required"}, called("count", '{"n": 7}')),
    ("two required calls", {"tool_choice": "required", "tools": [tool("count", {"type": "object"})]}, TWO),
    ("an answer with its form", {"response_format": FORMAT}, '{"n": 7}'),
    ("calls beside a form", {"response_format": FORMAT}, TWO),
    ("one call beside a form", {"response_format": FORMAT, "parallel_tool_calls": False}, called("count", "{}")),
    ("a choice", {"structured_outputs": {"choice": ["yes", "no"]}}, "no"),
    ("a call beside a regex", {"guided_regex": "[0-9]+"}, called("count", '{"n": 123}')),
    ("a number", {"guided_regex": "[0-9]+"}, "123"),
    ("by another grammar", {"structured_outputs": {"grammar": 'start: "a" more*\nmore: "b"'}}, "abb"),
    (
        "a required call, where a form was sent",
        {"response_format": FORMAT, "tool_choice": "required"},
        called("count", '{"n": 7}'),
    ),
)
ONE = {"parallel_tool_calls": False}
FORBIDDEN: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("an unknown tool", {}, called("nope", "{}")),
    ("no JSON", {}, called("count", "7")),
    ("strict arguments", {"tools": [tool("count", COUNT, strict=True)]}, called("count", '{"n": 77}')),
    ("required arguments", {"tool_choice": "required"}, called("count", '{"n": 77}')),
    ("text before a required call", {"tool_choice": "required"}, f"x{called('count', '{}')}"),
    ("another than the named", {"tool_choice": NAMED}, called("get_weather", '{"city": "x", "unit": "celsius"}')),
    ("two calls where one is allowed", ONE, TWO),
    ("an answer without its form", {"response_format": FORMAT}, '{"n": 77}'),
    ("text before an answer", {"response_format": FORMAT}, 'Well: {"n": 7}'),
    ("two calls beside a form where one is allowed", {"response_format": FORMAT, **ONE}, TWO),
    ("an answer where a call is required", {"response_format": FORMAT, "tool_choice": "required"}, '{"n": 7}'),
    ("two calls of the named", {"tool_choice": NAMED, "tools": [tool("count", {"type": "object"})]}, TWO),
)


@pytest.mark.parametrize(("what", "fields", "text"), [*ALLOWED, *FORBIDDEN], ids=lambda value: str(value)[:40])
def test_what_may_be_called_where(what, fields, text, toy_model):
    body = decode_body(json.dumps({"tools": TOOLS, **fields}).encode(), ChatBody)
    structure = call_structure(body, offered_tools(body), HERMES, structured_output(body))
    tokenizer = load_tokenizer(toy_model, TOY_VOCAB, (EOS_ID,))
    matcher = Grammars(tokenizer, GrammarOptions()).matcher(structure)
    tokens = tokenizer.tokenize_str(text)
    is_allowed = matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()
    assert is_allowed == ((what, fields, text) in ALLOWED)
