"""POST /v1/messages and count_tokens: events, blocks, errors in Anthropic's form, over the fake engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from named_events import named_events

from specserve.errors import QueueFullError

if TYPE_CHECKING:
    from fake_engine import FakeEngine

PATH, COUNT = "/v1/messages", "/v1/messages/count_tokens"
MESSAGES = [{"role": "user", "content": "x = 0"}]
WHOLE = {"max_tokens": 99, "messages": MESSAGES}


async def send(client: Any, **body: Any) -> Any:
    response = await client.post(PATH, json={**WHOLE, **body})
    assert response.status == 200, await response.text()
    return await response.json()


async def refusal(client: Any, body: dict[str, Any], path: str = PATH) -> tuple[int, str, str]:
    response = await client.post(path, json=body)
    answer = await response.json()
    assert (answer.keys(), answer["type"], answer["error"].keys()) == ({"type", "error"}, "error", {"type", "message"})
    return response.status, answer["error"]["type"], answer["error"]["message"]


def prompt_of(engine: FakeEngine) -> str:
    return engine.tokenizer.decode(engine.submitted[-1].prompt_token_ids)


async def test_a_message_has_anthropics_shape(client: Any, engine: FakeEngine) -> None:
    body = await send(client, max_tokens=3, metadata={"user_id": "u"}, service_tier="auto")
    assert body["id"].startswith("msg_")
    assert body["metrics"]["speculative_decoding"]["num_draft_tokens"] > 0
    tokens = engine.tokenizer.encode(engine.text)[:3]
    assert {key: value for key, value in body.items() if key not in ("id", "metrics")} == {
        "type": "message",
        "role": "assistant",
        "model": "fake-model",
        "content": [{"type": "text", "text": engine.tokenizer.decode(tokens)}],
        "stop_reason": "max_tokens",
        "stop_sequence": None,
        "usage": {
            "input_tokens": len(engine.submitted[0].prompt_token_ids) - 1,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 1,
            "output_tokens": 3,
            "service_tier": "standard",
        },
    }


async def test_the_events_of_a_text_come_in_order(client: Any, engine: FakeEngine) -> None:
    events = await named_events(client, PATH, {**WHOLE, "stop_sequences": ["🙂"]})
    start, block, *deltas, stop, last, end = events
    assert (start["type"], start["message"]["content"], start["message"]["stop_reason"]) == ("message_start", [], None)
    assert start["message"]["usage"]["cache_read_input_tokens"] == 1
    assert block == {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    assert all((delta["type"], delta["index"]) == ("content_block_delta", 0) for delta in deltas)
    assert len(deltas) > 2
    assert all(delta["delta"]["type"] == "text_delta" for delta in deltas)
    assert "".join(delta["delta"]["text"] for delta in deltas) == "hello wörld "
    assert stop == {"type": "content_block_stop", "index": 0}
    assert last["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "🙂"}
    assert last["usage"]["output_tokens"] > len(deltas)
    assert end == {"type": "message_stop"}


async def test_a_text_that_ends_by_itself_is_the_end_of_the_turn(client: Any, engine: FakeEngine) -> None:
    engine.reason = "stop"
    body = await send(client)
    assert (body["stop_reason"], body["content"][0]["text"]) == ("end_turn", engine.text[:-1])


async def test_a_prompt_is_the_system_text_and_turns_in_the_models_template(client: Any, engine: FakeEngine) -> None:
    blocks = [{"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "c"}]
    turns = [{"role": "user", "content": blocks}, {"role": "assistant", "content": blocks[:1]}, *MESSAGES]
    for system, text in (("a", "system: a\n"), (blocks, "system: b\nc\n"), (None, "")):
        await send(client, system=system, messages=turns)
        assert prompt_of(engine) == f"{text}user: b\nc\nassistant: b\nuser: x = 0\n"
    counted = await (await client.post(COUNT, json={"system": "a", "messages": turns})).json()
    assert counted == {"input_tokens": len(engine.submitted[0].prompt_token_ids)}


async def test_fields_reach_the_engine(client: Any, engine: FakeEngine) -> None:
    await send(client, temperature=0.5, top_p=0.25, top_k=3, stop_sequences=["a", "b"], cache_salt="s", seed=4)
    (request,) = engine.submitted
    params = request.params
    assert (params.temperature, params.top_p, params.top_k, params.max_tokens) == (0.5, 0.25, 3, 99)
    assert (params.stop, params.seed, request.cache_salt) == (("a", "b"), 4, "s")


async def test_an_error_before_the_first_event_has_its_status_and_later_ones_an_event(
    client: Any, engine: FakeEngine
) -> None:
    engine.error_after = 0
    assert await refusal(client, {**WHOLE, "stream": True}) == (500, "api_error", "the device is gone")
    engine.error_after = 2
    events = await named_events(client, PATH, WHOLE)
    assert events[-2]["type"] == "content_block_delta"
    assert events[-1] == {"type": "error", "error": {"type": "api_error", "message": "the device is gone"}}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": None}, "max_tokens is required"),
    ({"max_tokens": 0}, "max_tokens: must be an integer between 1 and 2147483647; got 0"),
    ({"messages": []}, "messages is required"),
    ({"messages": [{"role": "user"}]}, "messages[0].content: is missing; it must be a string or a list"),
    ({"messages": [{"role": "tool", "content": "a"}, *MESSAGES]}, 'messages[0].role: must be "user", "assistant"'),
    ({"messages": [*MESSAGES, {"role": "assistant", "content": "Sure, "}]}, "to begin the answer"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
     'content[0].type: must be "text" or "tool_result" here; got "image"; only text'),
    ({"messages": [{"role": "user", "content": [{"type": "document"}]}]}, 'got "document"; only text is served.'),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]},
     "messages[0].content[0].text: is missing; it must be a string."),
    ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "t"}]}, *MESSAGES]},
     "messages[0].content[0].name: is missing"),
    (
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}]},
        'messages[0].content[0].tool_use_id: no tool_use before it has the id "t"; send the turn',
    ),
    ({"system": [{"type": "image"}]}, 'system[0].type: must be "text" here; got "image"; only text is served.'),
    ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking: the chat template of this model knows no"),
    ({"thinking": {"type": "auto"}}, 'must be "adaptive", "disabled" or "enabled"; got "auto"'),
    ({"output_config": {"effort": "low"}}, "output_config.effort: the chat template of this model cannot set it"),
    ({"mcp_servers": [{"type": "url"}]}, "mcp_servers: is not served"),
    ({"container": "c"}, "container: is not served"),
    ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, "context_management: is not served"),
    ({"context_management": {"edits": [{"type": "clear_thinking_20251015"}]}}, "context_management: is not served"),
    ({"context_management": {"edits": [7]}}, "context_management: is not served"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, 'tools[0].type: "web_search_20250305" is not'),
    ({"tools": [{"name": "f"}]}, "tools[0].input_schema: is missing; it must be a JSON schema"),
    ({"tools": [{"name": "f", "input_schema": {}}]}, "tools: the chat template of this model has no place for them"),
    ({"tool_choice": {"type": "tool"}}, "needs the name"),
    ({"tool_choice": {"type": "any"}}, "tool_choice: a call is required, which needs tools"),
    ({"stop_sequences": [""]}, "stop_sequences: an empty string"),
    ({"stop_sequences": ["a"] * 17}, "stop_sequences: "),
    ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format: type json_schema needs"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "reason"), REFUSED, ids=lambda value: str(value)[:50])
async def test_what_cannot_be_served_is_refused_by_name(
    client: Any, engine: FakeEngine, fields: dict[str, Any], reason: str
) -> None:
    status, kind, message = await refusal(client, {**WHOLE, **fields})
    assert (status, kind) == (400, "invalid_request_error")
    assert reason in message
    assert engine.submitted == []


async def test_what_changes_no_answer_is_accepted(client: Any) -> None:
    await send(
        client, thinking={"type": "disabled"}, tools=[], mcp_servers=[], container=None, context_management=None,
        output_config={"effort": None, "format": None}, tool_choice={"type": "auto"}, stop_sequences=None,
        inference_geo="eu", cache_control={"type": "ephemeral"},
    )  # fmt: skip
    for edits in ([], [{"type": "clear_thinking_20251015", "keep": "all"}]):
        await send(client, context_management={"edits": edits})


@pytest.mark.direct
async def test_every_status_has_its_error_in_anthropics_form(
    connect: Any, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await connect(engine, max_body_bytes=400)
    too_long = {**WHOLE, "messages": [{"role": "user", "content": "x" * 300}]}
    for path in (PATH, COUNT):
        assert (await refusal(client, {"x": "a" * 500}, path))[:2] == (413, "request_too_large")
    status, kind, message = await refusal(client, too_long)
    assert (status, kind) == (400, "invalid_request_error")
    assert message.startswith("prompt is too long: messages: This model's maximum context length is 256 tokens")
    assert (await refusal(client, {**WHOLE, "model": "claude-x"}))[:2] == (404, "not_found_error")
    assert (await refusal(client, {}, f"{PATH}/batches"))[:2] == (404, "not_found_error")

    def full(request: object) -> None:
        raise QueueFullError("too many requests wait.", retry_after=7)

    monkeypatch.setattr(engine, "check", full)
    assert await refusal(client, WHOLE) == (429, "rate_limit_error", "too many requests wait.")
    engine.status = "draining"
    assert (await refusal(client, WHOLE))[:2] == (503, "overloaded_error")
    closed = await connect(engine, api_key="k")
    assert (await refusal(closed, WHOLE))[:2] == (401, "authentication_error")
    response = await client.get(PATH)
    assert (response.status, (await response.json())["error"]["type"]) == (405, "invalid_request_error")
    for path in ("/v1/messagesX", "/nowhere"):  # OpenAI's form everywhere else
        assert "code" in (await (await closed.post(path, json={})).json())["error"]
