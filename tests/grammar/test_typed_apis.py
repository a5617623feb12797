"""The Responses and Messages APIs through the openai and anthropic SDKs, against `specserve serve`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anthropic
import openai
import pydantic
import pytest
from jsonschema import Draft202012Validator
from test_tools import TEMPLATES

from server_process import ServerProcess, serve_command, stopped_well
from specserve_workbench.testing.toy import write_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNT = {
    "type": "object",
    "properties": {"n": {"type": "integer", "maximum": 9, "minimum": 0}},
    "required": ["n"],
    "additionalProperties": False,
}
FLAT: Any = [{"type": "function", "name": "count", "description": "counts", "parameters": COUNT, "strict": True}]
CLIENT: Any = [{"name": "count", "description": "counts", "input_schema": COUNT}]
BRIEF = "be brief, and say no more than is asked for"
SEEDED: Any = {"seed": 7}
MESSAGES: Any = [{"role": "user", "content": "how many?"}]


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=8)
    age: int = pydantic.Field(ge=0, le=99)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    model = write_checkpoint(tmp_path_factory.mktemp("model"))
    settings = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": TEMPLATES["hermes"]}))
    options = ("--threads", "1", "--kv-memory", "64M", "--served-model-name", "toy")
    command = serve_command(model, "--plugin", "grammar", "--plugin", "ngram", *options)
    with stopped_well(ServerProcess(command, model / "log")) as server:
        yield server.url


@pytest.fixture
def sdk(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as sdk:
        yield sdk


@pytest.fixture
def claude(url: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=url, api_key="x", max_retries=0) as sdk:
        yield sdk


# --- the Responses API ---------------------------------------------------------------------------------------------


def test_a_response_is_created_streamed_continued_read_and_deleted(sdk: openai.OpenAI) -> None:
    asked: Any = {"model": "toy", "instructions": BRIEF, "max_output_tokens": 12, "extra_body": SEEDED}
    first = sdk.responses.create(input="hello", temperature=0.9, **asked)
    assert (first.status, first.model, first.instructions) == ("incomplete", "toy", BRIEF)
    assert first.output_text
    assert first.usage is not None
    assert first.usage.output_tokens == 12
    with sdk.responses.stream(input="hello", temperature=0.9, **asked) as stream:
        events = list(stream)
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == first.output_text
    assert events[-1].type == "response.incomplete"
    second = sdk.responses.create(input="more", previous_response_id=first.id, **asked)
    assert second.usage is not None
    assert second.usage.input_tokens > first.usage.input_tokens
    assert second.usage.input_tokens_details.cached_tokens > 0
    assert sdk.responses.retrieve(second.id) == second
    sdk.responses.delete(second.id)
    with pytest.raises(openai.NotFoundError, match="is stored"):
        sdk.responses.retrieve(second.id)
    with pytest.raises(openai.NotFoundError, match="Send the conversation as input"):
        sdk.responses.create(input="more", previous_response_id=second.id, **asked)


def test_a_pydantic_model_is_parsed_whole_and_streamed(sdk: openai.OpenAI) -> None:
    asked: Any = {"model": "toy", "input": "who?", "text_format": Person, "max_output_tokens": 200}
    for seed in range(3):
        parsed = sdk.responses.parse(**asked, extra_body={"seed": seed})
        assert isinstance(parsed.output_parsed, Person)
        assert parsed.status == "completed"
    with sdk.responses.stream(**asked, extra_body={"seed": 2}) as stream:
        assert stream.get_final_response().output_parsed == parsed.output_parsed


def test_json_objects_are_asked_for_in_text_format(sdk: openai.OpenAI) -> None:
    found = sdk.responses.create(
        model="toy", input="x", max_output_tokens=400, text={"format": {"type": "json_object"}}, extra_body=SEEDED
    )
    if found.status == "completed":
        assert isinstance(json.loads(found.output_text), dict)
    wrong: Any = {"type": "json_schema", "name": "x", "schema": {"type": "x"}}
    with pytest.raises(openai.BadRequestError, match="Invalid type: x") as refusal:
        sdk.responses.create(model="toy", input="x", text={"format": wrong})
    assert refusal.value.param == "text.format"


def test_functions_are_called_and_their_results_go_back(sdk: openai.OpenAI) -> None:
    asked: Any = {"model": "toy", "tools": FLAT, "max_output_tokens": 300, "extra_body": SEEDED}
    first = sdk.responses.create(input="how many?", tool_choice="required", parallel_tool_calls=False, **asked)
    (call,) = first.output
    assert call.type == "function_call"
    assert (call.name, first.status) == ("count", "completed")
    Draft202012Validator(COUNT).validate(json.loads(call.arguments))
    named: Any = {"type": "function", "name": "count"}
    with sdk.responses.stream(input="how many?", tool_choice=named, **asked) as stream:
        events = list(stream)
        final = stream.get_final_response()
    (streamed,) = final.output
    assert streamed.type == "function_call"
    pieces = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert "".join(pieces) == streamed.arguments
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "3"}
    with_store = sdk.responses.create(input=[result], previous_response_id=first.id, tool_choice="none", **asked)
    history: Any = [{"role": "user", "content": "how many?"}, *first.output, result]
    without = sdk.responses.create(input=history, store=False, tool_choice="none", **asked)
    assert with_store.output_text == without.output_text


def test_errors_of_responses_are_exceptions(sdk: openai.OpenAI) -> None:
    for fields, param in (({"temperature": 1000.0}, "temperature"), ({"top_p": 0.0}, "top_p")):
        with pytest.raises(openai.BadRequestError) as refusal:
            sdk.responses.create(model="toy", input="a", **fields)
        assert refusal.value.param == param
    with pytest.raises(openai.BadRequestError, match=r"This model's maximum context length is \d+ tokens") as refusal:
        sdk.responses.create(model="toy", input="word " * 9000)
    assert refusal.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError, match="gpt-x"):
        sdk.responses.create(model="gpt-x", input="a")


# --- the Messages API ----------------------------------------------------------------------------------------------


def test_a_message_is_created_streamed_and_counted(claude: anthropic.Anthropic) -> None:
    prompt: Any = {"messages": MESSAGES, "system": BRIEF}
    asked: Any = {"model": "toy", "max_tokens": 12, "extra_body": SEEDED, **prompt}
    whole = claude.messages.create(**asked)
    (block,) = whole.content
    assert block.type == "text"
    assert (whole.stop_reason, whole.usage.output_tokens) == ("max_tokens", 12)
    with claude.messages.stream(**asked) as stream:
        assert "".join(stream.text_stream) == block.text
        final = stream.get_final_message()
    (streamed,) = final.content
    assert (streamed.text, final.stop_reason) == (block.text, whole.stop_reason)
    counted = claude.messages.count_tokens(model="toy", **prompt)
    read = final.usage.cache_read_input_tokens
    assert read
    assert counted.input_tokens == final.usage.input_tokens + read
    stop = block.text[4:6]
    stopped = claude.messages.create(**asked, stop_sequences=[stop])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", stop)


def test_tools_are_used_and_their_results_go_back(claude: anthropic.Anthropic) -> None:
    asked: Any = {"model": "toy", "tools": CLIENT, "max_tokens": 300, "extra_body": SEEDED}
    one: Any = {"type": "any", "disable_parallel_tool_use": True}
    first = claude.messages.create(messages=MESSAGES, tool_choice=one, **asked)
    (use,) = first.content
    assert use.type == "tool_use"
    assert (use.name, first.stop_reason) == ("count", "tool_use")
    Draft202012Validator(COUNT).validate(use.input)
    with claude.messages.stream(messages=MESSAGES, tool_choice=one, **asked) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    (streamed,) = final.content
    assert streamed.type == "tool_use"
    assert (streamed.input, final.stop_reason) == (use.input, "tool_use")
    assert "input_json" in kinds
    named: Any = {"type": "tool", "name": "count"}
    assert claude.messages.create(messages=MESSAGES, tool_choice=named, **asked).stop_reason == "tool_use"
    result: Any = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "3"}]}
    back: Any = [*MESSAGES, {"role": "assistant", "content": first.content}, result]
    asked["max_tokens"] = 8
    assert claude.messages.create(messages=back, tool_choice={"type": "none"}, **asked).stop_reason == "max_tokens"


def test_output_config_gives_a_message_its_form(claude: anthropic.Anthropic) -> None:
    form: Any = {"format": {"type": "json_schema", "schema": Person.model_json_schema()}}
    asked: Any = {"model": "toy", "messages": MESSAGES, "max_tokens": 200, "extra_body": SEEDED}
    (block,) = claude.messages.create(output_config=form, **asked).content
    assert block.type == "text"
    Person.model_validate_json(block.text)


def test_errors_of_messages_are_exceptions(claude: anthropic.Anthropic) -> None:
    asked: Any = {"model": "toy", "max_tokens": 5}
    with pytest.raises(anthropic.BadRequestError, match="thinking: the chat template of this model knows no reasoning"):
        claude.messages.create(messages=MESSAGES, thinking={"type": "enabled", "budget_tokens": 1024}, **asked)
    with pytest.raises(anthropic.BadRequestError) as refusal:
        claude.messages.create(messages=[{"role": "user", "content": "word " * 9000}], **asked)
    error: Any = refusal.value.body
    assert error["error"]["message"].startswith("prompt is too long")
    assert "This model's maximum context length is" in error["error"]["message"]
    with pytest.raises(anthropic.NotFoundError, match="claude-x"):
        claude.messages.create(messages=MESSAGES, model="claude-x", max_tokens=5)
