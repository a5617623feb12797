"""openai-agents: agents over chat completions and over /v1/responses, with tools, forms and streams."""

from __future__ import annotations

import asyncio

import openai
import pytest
from agents import (
    Agent,
    MaxTurnsExceeded,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from people import MAX_TOKENS, QUESTION, Person

set_tracing_disabled(True)
RESPONSES = pytest.param(OpenAIResponsesModel, marks=pytest.mark.needs_route("/v1/responses"), id="responses")


@pytest.fixture(params=[pytest.param(OpenAIChatCompletionsModel, id="chat"), RESPONSES])
def agent(request, server):
    """`agent(...)`: an Agent of the demo model, with a client of its own, for one event loop."""

    def agent(model: str = "demo", **fields) -> Agent:
        client = openai.AsyncOpenAI(base_url=server.v1, api_key=server.key, max_retries=0)
        choice = {"tool_choice": "required", "parallel_tool_calls": False} if "tools" in fields else {}
        settings = ModelSettings(temperature=0, max_tokens=MAX_TOKENS, **choice)
        return Agent(name="here", model=request.param(model, client), model_settings=settings, **fields)

    return agent


def test_a_stream_is_the_whole(agent):
    """The adapter ends its answer to this; over /v1/responses the agents take one that was cut off as an error."""

    async def stream() -> tuple[str, str]:
        run = Runner.run_streamed(agent("docstrings"), "a")
        events = [event.data async for event in run.stream_events() if event.type == "raw_response_event"]
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        return "".join(deltas), run.final_output

    whole = asyncio.run(Runner.run(agent("docstrings"), "a")).final_output
    assert asyncio.run(stream()) == (whole, whole)
    assert whole


def test_an_output_is_an_object(agent):
    run = asyncio.run(Runner.run(agent(output_type=Person), QUESTION))
    assert isinstance(run.final_output, Person)


def test_a_tool_is_run(agent):
    noted: list[int] = []

    @function_tool
    def note_age(age: int) -> str:
        """Notes an age."""
        noted.append(age)
        return "noted"

    calling = agent(tools=[note_age], tool_use_behavior="stop_on_first_tool")
    run = asyncio.run(Runner.run(calling, "an age"))
    assert (len(noted), run.final_output) == (1, "noted")
    assert [item.type for item in run.new_items] == ["tool_call_item", "tool_call_output_item"]


def test_results_go_back_until_the_turns_are_used_up(agent):
    noted: list[int] = []

    @function_tool
    def note_age(age: int) -> str:
        """Notes an age."""
        noted.append(age)
        return "noted"

    with pytest.raises(MaxTurnsExceeded):
        asyncio.run(Runner.run(agent(tools=[note_age], reset_tool_choice=False), "an age", max_turns=3))
    assert len(noted) == 3
