"""openai: texts, streams, log-probabilities, parse(), tools, responses, exceptions, adapters; sync and async."""

from __future__ import annotations

import asyncio
import json

import openai
import pytest
from people import MAX_TOKENS, QUESTION, Person

MESSAGES = [{"role": "user", "content": QUESTION}]
TOOL = openai.pydantic_function_tool(Person, name="note_person", description="notes a person")
ASK = {"model": "demo", "messages": MESSAGES, "temperature": 0, "max_tokens": MAX_TOKENS}
NAMED = {"type": "function", "function": {"name": "note_person"}}


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.v1, api_key=server.key, max_retries=0) as client:
        yield client


def test_models_are_listed_with_the_adapter(client):
    assert {model.id for model in client.models.list()} == {"demo", "docstrings"}
    assert client.models.retrieve("docstrings").owned_by == "specserve"


def test_a_stream_of_a_completion_is_the_whole(client):
    ask = {"model": "demo", "prompt": "def add(a, b):", "max_tokens": 40, "temperature": 0}
    whole = client.completions.create(**ask)
    chunks = list(client.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == whole.choices[0].text
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens == 40


def test_several_prompts_and_choices_come_in_order(client):
    answer = client.completions.create(model="demo", prompt=["a", "b"], n=2, max_tokens=4, seed=1)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    alone = client.completions.create(model="demo", prompt="a", max_tokens=4, seed=1)
    assert alone.choices[0].text == answer.choices[0].text


def test_log_probabilities_are_read_in_both_forms(client):
    text = client.completions.create(model="demo", prompt="a", max_tokens=4, logprobs=2, temperature=0)
    found = text.choices[0].logprobs
    assert found.token_logprobs == [max(top.values()) for top in found.top_logprobs]
    assert "".join(found.tokens) == text.choices[0].text
    chat = client.chat.completions.create(**ASK | {"max_tokens": 4}, logprobs=True, top_logprobs=2)
    tokens = chat.choices[0].logprobs.content
    assert [token.logprob for token in tokens] == [token.top_logprobs[0].logprob for token in tokens]
    assert b"".join(bytes(token.bytes) for token in tokens).decode() == chat.choices[0].message.content


def test_a_stream_of_a_chat_is_the_whole(client):
    whole = client.chat.completions.create(**ASK | {"max_tokens": 40})
    options = {"stream": True, "stream_options": {"include_usage": True}}
    *chunks, last = client.chat.completions.create(**ASK | {"max_tokens": 40}, **options)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.choices[0].message.content
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == whole.choices[0].finish_reason
    assert last.usage.completion_tokens == whole.usage.completion_tokens


def test_the_events_of_a_stream_end_in_the_whole(client):
    text = client.chat.completions.create(**ASK).choices[0].message.content
    ask = ASK | {"stop": text[20:24]}
    whole = client.chat.completions.create(**ask).choices[0]
    assert (whole.finish_reason, whole.message.content) == ("stop", text[: text.index(text[20:24])])
    with client.chat.completions.stream(**ask) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        last = stream.get_final_completion()
    assert "".join(deltas) == last.choices[0].message.content == whole.message.content


def test_parse_gives_an_object(client):
    answer = client.chat.completions.parse(**ASK, response_format=Person)
    assert isinstance(answer.choices[0].message.parsed, Person)


def test_parse_says_that_an_answer_was_cut(client):
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(**ASK | {"max_tokens": 3}, response_format=Person)


def test_a_streamed_parse_gives_an_object(client):
    with client.chat.completions.stream(**ASK, response_format=Person) as stream:
        parsed = [event.parsed for event in stream if event.type == "content.done"]
    assert [type(each) for each in parsed] == [Person]


@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_a_tool_is_called_with_parsed_arguments(client, choice):
    answer = client.chat.completions.parse(**ASK, tools=[TOOL], tool_choice=choice, parallel_tool_calls=False)
    (call,) = answer.choices[0].message.tool_calls
    assert call.function.name == "note_person"
    assert isinstance(call.function.parsed_arguments, Person)


def test_a_streamed_call_is_the_whole(client):
    ask = {**ASK, "tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False}
    whole = client.chat.completions.create(**ask).choices[0].message.tool_calls[0].function
    with client.chat.completions.stream(**ask) as stream:
        events = list(stream)
    deltas = [event for event in events if event.type == "tool_calls.function.arguments.delta"]
    (done,) = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    assert "".join(event.arguments_delta for event in deltas) == done.arguments == whole.arguments
    assert done.name == whole.name


def test_a_conversation_goes_on_with_the_result_of_a_call(client):
    first = client.chat.completions.create(**ASK, tools=[TOOL], tool_choice="required", parallel_tool_calls=False)
    message = first.choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": json.dumps({"noted": True})}
    ask = {**ASK, "messages": [*MESSAGES, message, result], "tools": [TOOL], "tool_choice": "none", "max_tokens": 8}
    answer = client.chat.completions.create(**ask)
    alone = client.chat.completions.create(**ASK | {"max_tokens": 1})
    assert answer.usage.prompt_tokens > alone.usage.prompt_tokens
    assert answer.choices[0].message.content


@pytest.mark.needs_route("/v1/responses")
def test_a_stream_of_a_response_is_the_whole(client):
    ask = {"model": "demo", "input": QUESTION, "temperature": 0, "max_output_tokens": 40}
    whole = client.responses.create(**ask)
    with client.responses.stream(**ask) as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
    assert "".join(deltas) == whole.output_text != ""
    assert (whole.status, whole.incomplete_details.reason) == ("incomplete", "max_output_tokens")


@pytest.mark.needs_route("/v1/responses")
def test_a_response_is_parsed_and_continued(client):
    ask = {"model": "demo", "temperature": 0, "max_output_tokens": MAX_TOKENS}
    first = client.responses.parse(**ask, input=QUESTION, text_format=Person)
    assert isinstance(first.output_parsed, Person)
    second = client.responses.create(**ask, input="another", previous_response_id=first.id)
    assert second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens // 2
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)


def test_many_requests_at_once_get_what_they_get_alone(server, client):
    async def ask_all() -> list[str]:
        async with openai.AsyncOpenAI(base_url=server.v1, api_key=server.key, max_retries=0) as many:
            prompts = [f"def f{i}(" for i in range(24)]
            answers = [many.completions.create(model=model_of(p), prompt=p, max_tokens=12, seed=3) for p in prompts]
            return [answer.choices[0].text for answer in await asyncio.gather(*answers)]

    def model_of(prompt: str) -> str:
        return "docstrings" if len(prompt) % 2 else "demo"

    found = asyncio.run(ask_all())
    for i in (0, 9, 10, 23):
        prompt = f"def f{i}("
        alone = client.completions.create(model=model_of(prompt), prompt=prompt, max_tokens=12, seed=3)
        assert alone.choices[0].text == found[i]


def test_a_stream_that_is_left_early_does_no_harm(client):
    with client.chat.completions.create(**ASK | {"max_tokens": 2000}, stream=True) as stream:
        next(iter(stream))
    assert client.chat.completions.create(**ASK | {"max_tokens": 2}).usage.completion_tokens == 2


def test_errors_are_the_exceptions_of_their_status(client, long_text):
    with pytest.raises(openai.BadRequestError, match="temperature") as wrong:
        client.chat.completions.create(**ASK | {"temperature": -1})
    assert (wrong.value.param, wrong.value.type) == ("temperature", "invalid_request_error")
    with pytest.raises(openai.NotFoundError, match="gpt-x"):
        client.chat.completions.create(**ASK | {"model": "gpt-x"})
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="wrong").models.list()
    with pytest.raises(openai.BadRequestError) as too_long:
        client.completions.create(model="demo", prompt=long_text, stream=True)
    assert too_long.value.code == "context_length_exceeded"
