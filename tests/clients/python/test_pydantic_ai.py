"""pydantic-ai: agents with tool output and native output, tools of one's own, streams; over chat and responses."""

from __future__ import annotations

import pytest
from people import MAX_TOKENS, QUESTION, Person
from pydantic_ai import Agent, ModelHTTPError, NativeOutput, ToolOutput, capture_run_messages
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

SETTINGS = {"max_tokens": MAX_TOKENS, "temperature": 0}


RESPONSES = pytest.param(OpenAIResponsesModel, marks=pytest.mark.needs_route("/v1/responses"), id="responses")


@pytest.fixture(params=[pytest.param(OpenAIChatModel, id="chat"), RESPONSES])
def model(request, server):
    return request.param("demo", provider=OpenAIProvider(base_url=server.v1, api_key=server.key))


@pytest.mark.parametrize("form", [Person, ToolOutput(Person, strict=True), NativeOutput(Person)])
def test_an_output_is_an_object(model, form):
    run = Agent(model, output_type=form, model_settings=SETTINGS).run_sync(QUESTION)
    assert isinstance(run.output, Person)
    assert run.usage.output_tokens > 5


@pytest.mark.parametrize("form", [ToolOutput(Person, strict=True), NativeOutput(Person)])
def test_a_streamed_output_ends_as_the_whole(model, form):
    agent = Agent(model, output_type=form, model_settings=SETTINGS)
    outputs = list(agent.run_stream_sync(QUESTION).stream_output(debounce_by=None))
    assert outputs[-1] == agent.run_sync(QUESTION).output


def test_text_is_streamed(model):
    agent = Agent(model, model_settings=SETTINGS | {"max_tokens": 20})
    run = agent.run_stream_sync("hello")
    assert "".join(run.stream_text(delta=True, debounce_by=None)) == agent.run_sync("hello").output != ""


def test_a_tool_is_run_and_its_result_goes_back(model):
    """The demo model never stops calling where it must call, so the limit ends the run."""
    noted: list[int] = []
    agent = Agent(model, output_type=ToolOutput(Person, strict=True), model_settings=SETTINGS)

    @agent.tool_plain(strict=True)
    def note_age(age: int) -> str:
        """Notes an age."""
        noted.append(age)
        return "noted"

    with capture_run_messages() as messages:
        try:
            agent.run_sync("an age", usage_limits=UsageLimits(request_limit=3))
        except UsageLimitExceeded:
            assert noted
    parts = [part.part_kind for message in messages for part in message.parts]
    assert "tool-call" in parts
    assert "tool-return" in parts


def test_a_wrong_key_is_an_http_error(server):
    model = OpenAIChatModel("demo", provider=OpenAIProvider(base_url=server.v1, api_key="wrong"))
    with pytest.raises(ModelHTTPError) as error:
        Agent(model).run_sync("a")
    assert error.value.status_code == 401
