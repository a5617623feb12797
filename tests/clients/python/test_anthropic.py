"""anthropic: POST /v1/messages, streams, tools, exceptions."""

from __future__ import annotations

import anthropic
import pytest

pytestmark = pytest.mark.needs_route("/v1/messages")
MESSAGES = [{"role": "user", "content": "the end"}]
ASK = {"model": "demo", "max_tokens": 40, "messages": MESSAGES, "extra_body": {"temperature": 0}}
"""This SDK has no argument for the temperature any more."""
TOOL = {
    "name": "note_age",
    "description": "notes an age",
    "input_schema": {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]},
}


@pytest.fixture(scope="module")
def client(server):
    with anthropic.Anthropic(base_url=server.url, api_key=server.key, max_retries=0) as client:
        yield client


def test_a_stream_is_the_whole(client):
    whole = client.messages.create(**ASK, system="answer")
    with client.messages.stream(**ASK, system="answer") as stream:
        text = "".join(stream.text_stream)
        last = stream.get_final_message()
    assert text == whole.content[0].text == last.content[0].text != ""
    assert (last.stop_reason, last.usage.output_tokens) == ("max_tokens", whole.usage.output_tokens)
    assert (whole.type, whole.role, whole.stop_reason) == ("message", "assistant", "max_tokens")


def test_a_stop_sequence_is_named(client):
    whole = client.messages.create(**ASK).content[0].text
    stop = whole[10:16]
    answer = client.messages.create(**ASK, stop_sequences=[stop])
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", stop)
    assert answer.content[0].text == whole[: whole.index(stop)]


def test_a_tool_is_called_in_answers_and_streams(client):
    ask = {**ASK, "max_tokens": 200, "tools": [TOOL], "tool_choice": {"type": "tool", "name": "note_age"}}
    (whole,) = client.messages.create(**ask).content
    with client.messages.stream(**ask) as stream:
        last = stream.get_final_message()
    (streamed,) = last.content
    assert (whole.type, whole.name, type(whole.input["age"])) == ("tool_use", "note_age", int)
    assert (streamed.name, streamed.input, last.stop_reason) == (whole.name, whole.input, "tool_use")


def test_a_conversation_goes_on_with_the_result_of_a_call(client):
    ask = {**ASK, "max_tokens": 200, "tools": [TOOL], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}
    first = client.messages.create(**ask)
    result = {"type": "tool_result", "tool_use_id": first.content[-1].id, "content": "noted"}
    messages = [*MESSAGES, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    answer = client.messages.create(**ask | {"messages": messages, "tool_choice": {"type": "none"}, "max_tokens": 8})
    assert answer.usage.input_tokens > client.messages.create(**ASK).usage.input_tokens


def test_tokens_are_counted(client, routes):
    if "/v1/messages/count_tokens" not in routes:
        pytest.skip("this server has no /v1/messages/count_tokens")
    counted = client.messages.count_tokens(model="demo", messages=MESSAGES)
    assert counted.input_tokens == client.messages.create(**ASK).usage.input_tokens


def test_errors_are_the_exceptions_of_their_status(client, long_text):
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(**ASK | {"model": "claude-x"})
    with pytest.raises(anthropic.BadRequestError):
        client.messages.create(**ASK | {"messages": [{"role": "user", "content": long_text}]})
    with pytest.raises(anthropic.AuthenticationError):
        client.with_options(api_key="wrong").messages.create(**ASK)
