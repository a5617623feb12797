"""langchain-openai: ChatOpenAI and OpenAI, streams, structured output by schema and by function, tools, chains."""

from __future__ import annotations

import asyncio

import openai
import pytest
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from people import MAX_TOKENS, QUESTION, Person


@pytest.fixture(scope="module")
def chat(server):
    return ChatOpenAI(
        model="demo", base_url=server.v1, api_key=server.key, temperature=0, max_tokens=MAX_TOKENS, max_retries=0
    )


@tool
def note_age(age: int) -> str:
    """Notes an age."""
    return f"noted {age}"


def joined(chunks):
    first, *rest = chunks
    for chunk in rest:
        first += chunk
    return first


def test_invoke_and_stream_give_the_same_text(chat):
    messages = [SystemMessage("answer"), HumanMessage("hello")]
    whole = chat.invoke(messages)
    streamed = joined(chat.stream(messages, stream_usage=True))
    assert whole.content == streamed.content != ""
    assert streamed.usage_metadata["output_tokens"] == whole.usage_metadata["output_tokens"]
    assert whole.response_metadata["finish_reason"] == "length"


def test_a_chain_takes_a_batch(chat):
    chain = ChatPromptTemplate.from_messages([("human", "{word}")]) | chat.bind(max_tokens=8)
    words = [{"word": word} for word in ("one", "two", "three")]
    answers = asyncio.run(chain.abatch(words))
    assert [answer.content for answer in answers] == [chain.invoke(word).content for word in words]


def test_log_probabilities_come_along(chat):
    answer = chat.bind(logprobs=True, top_logprobs=1, max_tokens=3).invoke("a")
    assert len(answer.response_metadata["logprobs"]["content"]) == 3


def test_the_legacy_completions_work(server):
    llm = OpenAI(model="demo", base_url=server.v1, api_key=server.key, temperature=0, max_tokens=12, max_retries=0)
    assert llm.invoke("def add(a, b):") == "".join(llm.stream("def add(a, b):")) != ""


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output_is_an_object(chat, method):
    assert isinstance(chat.with_structured_output(Person, method=method).invoke(QUESTION), Person)


def test_structured_output_of_a_strict_schema_comes_with_its_message(chat):
    llm = chat.with_structured_output(Person, method="json_schema", strict=True, include_raw=True)
    answer = llm.invoke(QUESTION)
    assert answer["parsing_error"] is None
    assert Person.model_validate_json(answer["raw"].content) == answer["parsed"]


@pytest.mark.parametrize("choice", ["any", "note_age"])
def test_tools_are_called_in_answers_and_streams(chat, choice):
    llm = chat.bind_tools([note_age], tool_choice=choice, strict=True, parallel_tool_calls=False)
    (call,) = llm.invoke("an age").tool_calls
    (streamed,) = joined(llm.stream("an age")).tool_calls
    assert (call["name"], call["args"]) == (streamed["name"], streamed["args"])
    assert note_age.invoke(call["args"]) == f"noted {call['args']['age']}"


def test_a_conversation_goes_on_with_the_result_of_a_call(chat):
    llm = chat.bind_tools([note_age], tool_choice="any", strict=True, parallel_tool_calls=False)
    asked = llm.invoke("an age")
    (call,) = asked.tool_calls
    messages = [HumanMessage("an age"), asked, ToolMessage("noted", tool_call_id=call["id"])]
    assert chat.bind_tools([note_age], tool_choice="none").invoke(messages).content


@pytest.mark.needs_route("/v1/responses")
def test_the_responses_api_gives_the_same_text(server, chat):
    fields = {"model": "demo", "base_url": server.v1, "api_key": server.key, "temperature": 0, "max_tokens": MAX_TOKENS}
    responses = ChatOpenAI(**fields, use_responses_api=True, max_retries=0)
    whole = responses.invoke("hello")
    assert whole.text == joined(responses.stream("hello")).text == chat.invoke("hello").text
    assert isinstance(responses.with_structured_output(Person).invoke(QUESTION), Person)


def test_errors_are_those_of_the_sdk(chat, long_text):
    with pytest.raises(openai.NotFoundError, match="gpt-x"):
        chat.bind(model="gpt-x").invoke("a")
    with pytest.raises(openai.BadRequestError) as too_long:
        chat.invoke(long_text)
    assert too_long.value.code == "context_length_exceeded"
