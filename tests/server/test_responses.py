"""POST /v1/responses: events, items, defaults and the store, over the fake engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from named_events import named_events

if TYPE_CHECKING:
    from fake_engine import FakeEngine

PATH = "/v1/responses"
WHOLE = {"max_output_tokens": 99, "input": "x = 0"}


async def respond(client: Any, **body: Any) -> Any:
    response = await client.post(PATH, json={**WHOLE, **body})
    assert response.status == 200, await response.text()
    return await response.json()


async def events_of(client: Any, **body: Any) -> list[dict[str, Any]]:
    """The numbers have no gap."""
    events = await named_events(client, PATH, {**WHOLE, **body})
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def prompt_of(engine: FakeEngine) -> str:
    return engine.tokenizer.decode(engine.submitted[-1].prompt_token_ids)


async def test_a_response_has_openais_shape(client: Any, engine: FakeEngine) -> None:
    body = await respond(client, metadata={"a": "b"}, user="me", temperature=0.5, max_output_tokens=3)
    (item,) = body["output"]
    tokens = engine.tokenizer.encode(engine.text)
    (part,) = item["content"]
    assert part == {
        "type": "output_text",
        "text": engine.tokenizer.decode(tokens[:3]),
        "annotations": [],
        "logprobs": [],
    }
    assert (item["type"], item["role"], item["status"]) == ("message", "assistant", "incomplete")
    assert (body["object"], body["status"], body["model"]) == ("response", "incomplete", "fake-model")
    assert body["incomplete_details"] == {"reason": "max_output_tokens"}
    assert (body["metadata"], body["user"], body["temperature"]) == ({"a": "b"}, "me", 0.5)
    prompt = len(engine.submitted[0].prompt_token_ids)
    assert body["usage"] == {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + 3,
    }
    assert body["metrics"]["speculative_decoding"]["num_draft_tokens"] > 0


async def test_the_events_of_a_text_come_in_order(client: Any, engine: FakeEngine) -> None:
    events = await events_of(client)
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert len(deltas) > 2
    assert "".join(event["delta"] for event in deltas) == engine.text
    assert [event["type"] for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * len(deltas),
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ]
    assert (events[0]["response"]["status"], events[0]["response"]["output"]) == ("in_progress", [])
    ids = {event["item_id"] for event in events if "item_id" in event}
    assert ids == {events[2]["item"]["id"]}
    assert (events[2]["item"]["content"], events[3]["part"]["text"]) == ([], "")
    done, part, item, last = events[-4:]
    assert done["text"] == part["part"]["text"] == item["item"]["content"][0]["text"] == engine.text
    assert last["response"]["output"] == [item["item"]]


async def test_a_text_that_ends_by_itself_is_completed(client: Any, engine: FakeEngine) -> None:
    engine.reason = "stop"
    body = await respond(client)
    assert (body["status"], body["incomplete_details"], body["output"][0]["status"]) == ("completed", None, "completed")
    assert body["completed_at"] >= body["created_at"]
    assert (await events_of(client))[-1]["type"] == "response.completed"
    engine.text = " !"  # the last token stops and is not shown: blanks that no text follows are the answer
    (blank,) = (await respond(client))["output"]
    assert blank["content"][0]["text"] == " "


async def test_a_prompt_is_instructions_and_items_in_the_models_template(client: Any, engine: FakeEngine) -> None:
    items = [
        {"role": "developer", "content": "b"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "c"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "d", "annotations": []}]},
        {"role": "user", "content": "e"},
    ]
    await respond(client, instructions="a", input=items)
    assert prompt_of(engine) == "system: a\n\nb\nuser: c\nassistant: d\nuser: e\n"
    await respond(client, input="f")
    assert prompt_of(engine) == "user: f\n"


async def test_fields_reach_the_engine(client: Any, engine: FakeEngine) -> None:
    await respond(client, temperature=0.5, top_p=0.25, top_k=3, seed=9, cache_salt="s", priority=-1)
    (request,) = engine.submitted
    params = request.params
    assert (params.temperature, params.top_p, params.top_k, params.seed, params.max_tokens) == (0.5, 0.25, 3, 9, 99)
    assert (request.cache_salt, request.priority) == ("s", -1)
    await respond(client, max_output_tokens=None)
    assert engine.submitted[1].params.max_tokens == engine.max_model_len - len(request.prompt_token_ids)


async def test_a_conversation_goes_on_from_a_stored_response(client: Any, engine: FakeEngine) -> None:
    first = await respond(client, input="a", instructions="be brief")
    second = await respond(client, input="b", previous_response_id=first["id"])
    assert prompt_of(engine) == f"user: a\nassistant: {engine.text}\nuser: b\n"
    assert second["previous_response_id"] == first["id"]
    assert (await client.delete(f"{PATH}/{first['id']}")).status == 200
    await respond(client, input="c", previous_response_id=second["id"], instructions="be long")
    text = f"system: be long\nuser: a\nassistant: {engine.text}\nuser: b\nassistant: {engine.text}\nuser: c\n"
    assert prompt_of(engine) == text


async def test_a_response_is_read_again_until_it_is_deleted(client: Any) -> None:
    made = await respond(client, text={"format": {"type": "text"}})
    found = await client.get(f"{PATH}/{made['id']}")
    assert (found.content_type, await found.json()) == ("application/json", made)
    streamed = (await events_of(client))[-1]["response"]
    assert await (await client.get(f"{PATH}/{streamed['id']}")).json() == streamed
    assert (await client.get(f"{PATH}/{made['id']}?stream=true")).status == 400
    gone = await client.delete(f"{PATH}/{made['id']}")
    assert await gone.json() == {"id": made["id"], "object": "response", "deleted": True}
    for method in ("GET", "DELETE"):
        response = await client.request(method, f"{PATH}/{made['id']}")
        assert (response.status, (await response.json())["error"]["code"]) == (404, "response_not_found")


async def test_store_false_keeps_nothing(client: Any) -> None:
    made = await respond(client, store=False)
    assert made["store"] is False
    assert (await client.get(f"{PATH}/{made['id']}")).status == 404
    response = await client.post(PATH, json={**WHOLE, "previous_response_id": made["id"]})
    error = (await response.json())["error"]
    assert (response.status, error["param"]) == (404, "previous_response_id")
    assert error["code"] == "previous_response_not_found"
    assert "Send the conversation as input" in error["message"]


async def test_truncation_keeps_the_latest_part_that_fits(client: Any, engine: FakeEngine) -> None:
    """Each turn of "user: x\\n" and "assistant: y\\n" has many tokens: the context holds some of them."""
    items = [{"role": "system", "content": "s"}]
    for i in range(60):
        items += [{"role": "user", "content": f"question {i}"}, {"role": "assistant", "content": f"answer {i}"}]
    items.append({"role": "user", "content": "last"})
    refused = await client.post(PATH, json={"input": items})
    error = (await refused.json())["error"]
    assert (refused.status, error["code"], error["param"]) == (400, "context_length_exceeded", "input")
    assert error["message"].startswith("input: This model's maximum context length is 256 tokens")
    await respond(client, input=items, truncation="auto", max_output_tokens=None)
    prompt = prompt_of(engine)
    assert prompt.startswith("system: s\nuser: question ")
    assert prompt.endswith("answer 59\nuser: last\n")
    kept = prompt.count("question")
    longer = [items[0], *items[-2 * (kept + 1) - 1 :]]
    assert (await client.post(PATH, json={"input": longer})).status == 400
    assert (
        await client.post(PATH, json={"input": [{"role": "user", "content": "x" * 999}], "truncation": "auto"})
    ).status == 400


async def test_an_error_before_the_first_event_has_its_status_and_later_ones_an_event(
    client: Any, engine: FakeEngine
) -> None:
    engine.error_after = 0
    response = await client.post(PATH, json={**WHOLE, "stream": True})
    assert (response.status, (await response.json())["error"]["code"]) == (500, "generation_failed")
    engine.error_after = 2
    events = await events_of(client)
    assert events[-1]["type"] == "response.failed"
    failed = events[-1]["response"]
    assert (failed["status"], failed["error"]) == ("failed", {"code": "server_error", "message": "the device is gone"})
    assert (await client.get(f"{PATH}/{failed['id']}")).status == 404
    assert (await client.post(PATH, json=WHOLE)).status == 500


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"input": None}, "input", "input is required"),
    ({"input": []}, "input", "no items"),
    ({"input": [{"role": "tool", "content": "a"}]}, "input", 'input[0].role: must be "user", "assistant", "system"'),
    ({"input": [{"type": "file_search_call"}]}, "input", 'or "item_reference"; got "file_search_call"; leave it out.'),
    ({"input": [{"type": "reasoning", "content": [{"type": "text"}]}]},
     "input", 'input[0].content[0].type: must be "reasoning_text", since'),
    ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
     "input", 'since only text is served; got "input_image".'),
    ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
     "input", "input[0].content[0].text: is missing"),
    ({"input": [{"type": "function_call", "name": "f"}]},
     "input", "input[0].call_id: is missing; a function_call needs call_id and name"),
    ({"input": [{"type": "function_call_output", "call_id": "c", "output": "1"}]},
     "input", 'input[0].call_id: no call before it has the call_id "c"'),
    ({"input": ["a"]}, "input", 'must be an object with "type", "id"'),
    ({"max_output_tokens": 0}, "max_output_tokens", "an integer between 1 and 2147483647; got 0"),
    ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice", "needs tools"),
    ({"tool_choice": {"type": "web_search"}}, "tool_choice", 'type "web_search"'),
    ({"tools": [{"type": "custom"}]}, "tools", "tools[0].name: is missing"),
    ({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}]}, "tools", "tools[0].tools[0]"),
    ({"tools": [{"type": "function"}]}, "tools", "tools[0].name: is missing; it must be a name of 1 to 64 letters"),
    ({"tools": [{"type": "function", "name": "f"}] * 2}, "tools", "the same name"),
    ({"tools": [{"type": "function", "name": "f"}]}, "tools", "has no place for them"),
    ({"tool_choice": "required"}, "tool_choice", "needs tools"),
    ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice", 'no tool is called "f"; there are no tools.'),
    ({"tool_choice": {"type": "file_search"}}, "tool_choice", 'type "file_search"'),
    ({"background": True}, "background", "not served"),
    ({"conversation": "conv_1"}, "conversation", "previous_response_id"),
    ({"conversation": {"id": "conv_1"}}, "conversation", "previous_response_id"),
    ({"prompt": {"id": "pmpt_1"}}, "prompt", "instructions"),
    ({"context_management": [{"type": "compaction"}]}, "context_management", "truncation"),
    ({"include": ["message.output_text.logprobs"]}, "include", "message.output_text.logprobs"),
    ({"top_logprobs": 3}, "top_logprobs", "/v1/chat/completions"),
    ({"reasoning": {"effort": "high"}}, "reasoning.effort", "reasoning.effort: the chat template of this model cannot"),
    ({"reasoning": {"effort": "huge"}}, "reasoning", 'or "xhigh"; got "huge"'),
    ({"text": {"verbosity": "low"}}, "text.verbosity", "text.verbosity: the chat template of this model cannot"),
    ({"text": {"format": {"type": "yaml"}}}, "text", 'or "text"; got "yaml"'),
    ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format", "needs"),
    ({"truncation": "some"}, "truncation", 'must be "auto" or "disabled"; got "some"'),
    ({"metadata": {"a": "b" * 513}}, "metadata", "a string of at most 512 characters; got 513 characters"),
    ({"metadata": {str(i): "" for i in range(17)}}, "metadata", "an object of at most 16 strings"),
    ({"previous_response_id": 7}, "previous_response_id", "must be a string; got 7"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param", "reason"), REFUSED, ids=lambda value: str(value)[:50])
async def test_what_cannot_be_served_is_refused_by_name(
    client: Any, engine: FakeEngine, fields: dict[str, Any], param: str, reason: str
) -> None:
    response = await client.post(PATH, json={**WHOLE, **fields})
    error = (await response.json())["error"]
    assert (response.status, error["param"]) == (400, param), error
    assert reason in error["message"]
    assert engine.submitted == []


async def test_what_changes_no_answer_is_accepted(client: Any) -> None:
    await respond(
        client, user="u", service_tier="flex", safety_identifier="x", prompt_cache_key="k", max_tool_calls=3,
        include=["reasoning.encrypted_content"], reasoning={"effort": None, "summary": "auto"}, conversation=None,
        prompt=None, background=False, text={"format": {"type": "text"}, "verbosity": "medium"}, top_logprobs=0,
        truncation="disabled", stream_options={"include_obfuscation": False}, tool_choice="auto", tools=[],
    )  # fmt: skip
