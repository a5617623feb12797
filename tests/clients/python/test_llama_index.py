"""llama-index: OpenAILike as a model for chat and for completions, streams, structured prediction, tools."""

from __future__ import annotations

import openai
import pytest
from llama_index.core.llms import ChatMessage
from llama_index.core.program import FunctionCallingProgram
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from people import MAX_TOKENS, QUESTION, Person


def model(server, **fields):
    given = {"api_base": server.v1, "api_key": server.key, "temperature": 0, "max_tokens": MAX_TOKENS, "max_retries": 0}
    return OpenAILike(model="demo", context_window=4096, **given | fields)


@pytest.fixture(scope="module")
def chat(server):
    return model(server, is_chat_model=True, is_function_calling_model=True)


def test_a_stream_of_a_chat_is_the_whole(chat):
    messages = [ChatMessage(role="system", content="answer"), ChatMessage(role="user", content="hello")]
    whole = chat.chat(messages, max_tokens=30).message.content
    assert "".join(part.delta or "" for part in chat.stream_chat(messages, max_tokens=30)) == whole != ""


def test_a_stream_of_a_completion_is_the_whole(server):
    llm = model(server, is_chat_model=False, max_tokens=20)
    whole = llm.complete("def add(a, b):").text
    assert "".join(part.delta or "" for part in llm.stream_complete("def add(a, b):")) == whole != ""


def test_a_tool_is_called(chat):
    def note_age(age: int) -> str:
        """Notes an age."""
        return f"noted {age}"

    tool = FunctionTool.from_defaults(note_age)
    answer = chat.chat_with_tools([tool], "an age", tool_required=True, allow_parallel_tool_calls=False)
    (call,) = chat.get_tool_calls_from_response(answer)
    assert call.tool_name == "note_age"
    assert tool(**call.tool_kwargs).raw_output == f"noted {call.tool_kwargs['age']}"


def test_structured_prediction_by_a_function_gives_an_object(chat):
    program = FunctionCallingProgram.from_defaults(Person, prompt_template_str=QUESTION, llm=chat, tool_required=True)
    assert isinstance(program(), Person)


def test_structured_prediction_by_a_schema_gives_an_object(server):
    llm = model(server, is_chat_model=True, should_use_structured_outputs=True)
    assert isinstance(llm.as_structured_llm(Person).complete(QUESTION).raw, Person)


def test_errors_are_those_of_the_sdk(server, long_text):
    with pytest.raises(openai.AuthenticationError):
        model(server, is_chat_model=True, api_key="wrong").chat([ChatMessage(role="user", content="a")])
    with pytest.raises(openai.BadRequestError):
        model(server, is_chat_model=False).complete(long_text)
