"""litellm: completion and text completion through its providers `openai` and `hosted_vllm`, streams, tools, errors."""

from __future__ import annotations

import asyncio
import json

import litellm
import pytest
from people import MAX_TOKENS, QUESTION, Person

MESSAGES = [{"role": "user", "content": QUESTION}]
TOOL = {
    "type": "function",
    "function": {"name": "note_person", "strict": True, "parameters": Person.model_json_schema()},
}


@pytest.fixture(params=["openai", "hosted_vllm"])
def ask(request, server):
    model = f"{request.param}/demo"
    base = {"api_base": server.v1, "api_key": server.key, "max_tokens": MAX_TOKENS, "temperature": 0, "num_retries": 0}

    def ask(**fields):
        return litellm.completion(**{"model": model, "messages": MESSAGES, **base, **fields})

    return ask


def test_a_stream_is_the_whole(ask):
    whole = ask(max_tokens=30)
    chunks = list(ask(max_tokens=30, stream=True, stream_options={"include_usage": True}))
    rebuilt = litellm.stream_chunk_builder(chunks, messages=MESSAGES)
    assert rebuilt.choices[0].message.content == whole.choices[0].message.content != ""
    assert rebuilt.usage.completion_tokens == whole.usage.completion_tokens == 30
    assert rebuilt.choices[0].finish_reason == whole.choices[0].finish_reason == "length"


def test_a_schema_is_followed(ask):
    answer = ask(response_format=Person)
    assert Person.model_validate_json(answer.choices[0].message.content)


def test_a_tool_is_called_in_answers_and_streams(ask):
    fields = {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False}
    (whole,) = ask(**fields).choices[0].message.tool_calls
    assert Person.model_validate_json(whole.function.arguments)
    rebuilt = litellm.stream_chunk_builder(list(ask(**fields, stream=True)))
    (streamed,) = rebuilt.choices[0].message.tool_calls
    assert (streamed.function.name, streamed.function.arguments) == (whole.function.name, whole.function.arguments)


def test_parameters_of_this_server_pass_through(ask):
    answer = ask(max_tokens=8, extra_body={"min_p": 0.1, "return_token_ids": True, "speculation": {"enabled": False}})
    assert answer.usage.completion_tokens == 8


def test_the_legacy_completions_work(server):
    fields = {"model": "text-completion-openai/demo", "api_base": server.v1, "api_key": server.key, "temperature": 0}
    whole = litellm.text_completion(**fields, prompt="def add(a, b):", max_tokens=12)
    chunks = litellm.text_completion(**fields, prompt="def add(a, b):", max_tokens=12, stream=True)
    assert "".join(chunk.choices[0].text or "" for chunk in chunks) == whole.choices[0].text != ""


@pytest.mark.needs_route("/v1/responses")
def test_a_stream_of_a_response_is_the_whole(server):
    fields = {"model": "openai/demo", "api_base": server.v1, "api_key": server.key, "temperature": 0, "input": "hello"}
    whole = litellm.responses(**fields, max_output_tokens=20)
    events = litellm.responses(**fields, max_output_tokens=20, stream=True)
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == whole.output[0].content[0].text != ""


def test_the_async_front_serves_many_at_once(server):
    async def ask_all():
        fields = {"model": "openai/docstrings", "api_base": server.v1, "api_key": server.key, "max_tokens": 5}
        more = {"messages": MESSAGES, "extra_body": {"ignore_eos": True}}
        return await asyncio.gather(*(litellm.acompletion(**fields, **more, seed=i) for i in range(8)))

    assert [answer.usage.completion_tokens for answer in asyncio.run(ask_all())] == [5] * 8


def test_errors_are_its_own_exceptions(ask):
    with pytest.raises(litellm.BadRequestError, match="temperature"):
        ask(temperature=-1)
    with pytest.raises(litellm.NotFoundError, match="gpt-x"):
        ask(model="openai/gpt-x")
    with pytest.raises(litellm.AuthenticationError):
        ask(api_key="wrong")


def test_a_prompt_beyond_the_context_is_a_context_window_error(ask, long_text):
    with pytest.raises(litellm.ContextWindowExceededError):
        ask(messages=[{"role": "user", "content": long_text}])


def test_a_router_goes_on_after_a_wrong_request(server):
    fields = {"model": "openai/demo", "api_base": server.v1, "api_key": server.key}
    router = litellm.Router(model_list=[{"model_name": "here", "litellm_params": fields}], num_retries=0)
    with pytest.raises(litellm.BadRequestError):
        router.completion(model="here", messages=MESSAGES, max_tokens=-1)
    answer = router.completion(model="here", messages=MESSAGES, max_tokens=4)
    assert json.loads(answer.model_dump_json())["usage"]["completion_tokens"] == 4
