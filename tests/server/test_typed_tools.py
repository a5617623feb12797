"""Tools in the Responses and Messages APIs: text and calls in their order, however they are generated in steps."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from named_events import named_events
from patience import PATIENCE

from specserve_server.responses.store import RESPONSES as RESPONSE_STORE

if TYPE_CHECKING:
    from fake_engine import FakeEngine

RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
OTHER = '<tool_call>{"arguments": {"n": 1}, "name": "count"}</tool_call>'
TEXT = f"Let me see.\n{CALL}\n{OTHER} And then."
CALLED = (
    "user: a\nassistant: Let me see.\n\nAnd then."
    '<tool_call>{"name": "weather", "arguments": {"city": "Paris"}}</tool_call>'
    '<tool_call>{"name": "count", "arguments": {"n": 1}}</tool_call>'
)
"""The conversation with that answer, in the template of `tool_engine`."""
FLAT = [{"type": "function", "name": name, "description": "d", "parameters": SCHEMA} for name in ("weather", "count")]
CLIENT = [{"name": name, "description": "d", "input_schema": SCHEMA} for name in ("weather", "count")]
ASK_RESPONSES = {"input": "a", "tools": FLAT}
ASK_MESSAGES = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 500, "tools": CLIENT}


@pytest.fixture
async def client(connect: Any, tool_engine: FakeEngine) -> Any:
    tool_engine.text = f"{TEXT}!"  # the last token stops and is not shown
    return await connect(tool_engine)


async def post(client: Any, path: str, body: dict[str, Any]) -> Any:
    response = await client.post(path, json=body)
    assert response.status == 200, await response.text()
    return await response.json()


def shown_items(output: list[dict[str, Any]]) -> list[Any]:
    """Without ids, which are new each time."""
    return [
        item["content"][0]["text"] if item["type"] == "message" else (item["name"], item["arguments"])
        for item in output
    ]


def shown_blocks(content: list[dict[str, Any]]) -> list[Any]:
    return [block["text"] if block["type"] == "text" else (block["name"], block["input"]) for block in content]


async def test_a_conversation_goes_on_after_a_stored_call_that_was_cut_off(
    client: Any, tool_engine: FakeEngine
) -> None:
    tool_engine.text, tool_engine.reason = CALL[: CALL.index(' "Paris"')], "length"
    cut = await post(client, RESPONSES, ASK_RESPONSES)
    assert (cut["status"], cut["output"][0]["arguments"]) == ("incomplete", '{"city":')
    result = {"type": "function_call_output", "call_id": cut["output"][0]["call_id"], "output": "what?"}
    await post(client, RESPONSES, {**ASK_RESPONSES, "input": [result], "previous_response_id": cut["id"]})
    prompt = tool_engine.tokenizer.decode(tool_engine.submitted[-1].prompt_token_ids)
    assert '"arguments": {"INVALID_JSON": "{\\"city\\":"}}' in prompt


@pytest.mark.parametrize("width", [1, 3, 999])
async def test_a_response_has_text_and_calls_in_their_order(client: Any, tool_engine: FakeEngine, width: int) -> None:
    tool_engine.width = width
    body = await post(client, RESPONSES, ASK_RESPONSES)
    expected = ["Let me see.\n", ("weather", '{"city": "Paris"}'), ("count", '{"n": 1}'), "And then."]
    assert shown_items(body["output"]) == expected
    assert [item["status"] for item in body["output"]] == ["completed"] * 4
    assert body["tools"] == [{**tool, "strict": False} for tool in FLAT]
    events = await named_events(client, RESPONSES, ASK_RESPONSES)
    assert shown_items(events[-1]["response"]["output"]) == expected


async def test_the_events_of_calls_come_in_order(client: Any) -> None:
    events = await named_events(client, RESPONSES, ASK_RESPONSES)
    of_calls = [event for event in events if event.get("output_index") in (1, 2)]
    joined: dict[int, str] = {1: "", 2: ""}
    kinds: dict[int, list[str]] = {1: [], 2: []}
    for event in of_calls:
        kind = event["type"].removeprefix("response.")
        if kinds[event["output_index"]][-1:] != [kind]:
            kinds[event["output_index"]].append(kind)
        joined[event["output_index"]] += event.get("delta", "")
    order = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"]
    assert kinds == {1: order, 2: order}
    done = [event for event in of_calls if event["type"] == "response.function_call_arguments.done"]
    assert [event["arguments"] for event in done] == [joined[1], joined[2]] == ['{"city": "Paris"}', '{"n": 1}']
    assert [event["name"] for event in done] == ["weather", "count"]
    assert len({event["item"]["call_id"] for event in of_calls if "item" in event}) == 2


@pytest.mark.parametrize("width", [1, 3, 999])
async def test_a_message_has_text_and_uses_of_tools_in_their_order(
    client: Any, tool_engine: FakeEngine, width: int
) -> None:
    tool_engine.width = width
    body = await post(client, MESSAGES, ASK_MESSAGES)
    expected = ["Let me see.\n", ("weather", {"city": "Paris"}), ("count", {"n": 1}), "And then."]
    assert shown_blocks(body["content"]) == expected
    assert body["stop_reason"] == "tool_use"
    events = await named_events(client, MESSAGES, ASK_MESSAGES)
    blocks: list[Any] = []
    texts: list[str] = []
    for event in events[1:-2]:
        if event["type"] == "content_block_start":
            assert event["index"] == len(blocks)
            blocks.append(event["content_block"])
            texts.append("")
        elif event["type"] == "content_block_delta":
            kind = "text" if blocks[-1]["type"] == "text" else "partial_json"
            texts[-1] += event["delta"][kind]
        assert event["index"] == len(blocks) - 1
    whole = [
        text if b["type"] == "text" else (b["name"], json.loads(text)) for b, text in zip(blocks, texts, strict=True)
    ]
    assert whole == expected
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


async def test_calls_that_are_cut_off_are_incomplete(client: Any, tool_engine: FakeEngine) -> None:
    tool_engine.text, tool_engine.reason = CALL[: CALL.index("ris")], "length"
    body = await post(client, RESPONSES, ASK_RESPONSES)
    (item,) = body["output"]
    assert (body["status"], item["status"], item["arguments"]) == ("incomplete", "incomplete", '{"city": "Pa')
    message = await post(client, MESSAGES, ASK_MESSAGES)
    assert message["stop_reason"] == "max_tokens"
    assert message["content"][0]["input"] == {"INVALID_JSON": '{"city": "Pa'}


async def test_calls_with_a_number_beyond_floats_are_shown_as_text_and_go_on(
    client: Any, tool_engine: FakeEngine
) -> None:
    arguments = '{"n": 1e999}'
    tool_engine.text = f'<tool_call>{{"name": "count", "arguments": {arguments}}}</tool_call>!'
    message = await post(client, MESSAGES, ASK_MESSAGES)
    assert shown_blocks(message["content"]) == [("count", {"INVALID_JSON": arguments})]
    first = await post(client, RESPONSES, ASK_RESPONSES)
    assert shown_items(first["output"]) == [("count", arguments)]
    result = {"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "5"}
    await post(client, RESPONSES, {**ASK_RESPONSES, "input": [result], "previous_response_id": first["id"]})
    prompt = tool_engine.tokenizer.decode(tool_engine.submitted[-1].prompt_token_ids)
    assert '"arguments": {"INVALID_JSON": "{\\"n\\": 1e999}"}' in prompt


async def test_a_response_goes_on_with_results(client: Any, tool_engine: FakeEngine) -> None:
    first = await post(client, RESPONSES, ASK_RESPONSES)
    calls = [item for item in first["output"] if item["type"] == "function_call"]
    results = [{"type": "function_call_output", "call_id": call["call_id"], "output": call["name"]} for call in calls]
    references = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
    prompts = []
    for body in (
        {"input": results, "previous_response_id": first["id"]},
        {"input": [{"role": "user", "content": "a"}, *first["output"], *results]},
        {"input": [{"role": "user", "content": "a"}, *references, *results]},
    ):
        await post(client, RESPONSES, body)
        prompts.append(tool_engine.tokenizer.decode(tool_engine.submitted[-1].prompt_token_ids))
    assert prompts[0] == prompts[1] == prompts[2] == f"{CALLED}\ntool: weather\ntool: count\n"
    bad = [{**results[0], "call_id": "call_0"}]
    response = await client.post(RESPONSES, json={"input": bad, "previous_response_id": first["id"]})
    assert response.status == 400
    response = await client.post(RESPONSES, json={"input": [{"type": "item_reference", "id": "msg_0"}]})
    assert (response.status, (await response.json())["error"]["param"]) == (404, "input")


async def test_a_conversation_of_messages_goes_on_with_results(client: Any, tool_engine: FakeEngine) -> None:
    first = await post(client, MESSAGES, ASK_MESSAGES)
    uses = [block for block in first["content"] if block["type"] == "tool_use"]
    results = [
        {"type": "tool_result", "tool_use_id": uses[0]["id"], "content": [{"type": "text", "text": "sun"}]},
        {"type": "tool_result", "tool_use_id": uses[1]["id"], "content": "none", "is_error": True},
        {"type": "text", "text": "go on"},
    ]
    turns = [*ASK_MESSAGES["messages"], {"role": "assistant", "content": first["content"]}]
    body = {**ASK_MESSAGES, "messages": [*turns, {"role": "user", "content": results}]}
    await post(client, MESSAGES, body)
    prompt = tool_engine.tokenizer.decode(tool_engine.submitted[-1].prompt_token_ids)
    assert prompt.endswith(f"\n{CALLED}\ntool: sun\ntool: error: none\nuser: go on\n")
    counted = await post(client, f"{MESSAGES}/count_tokens", {key: body[key] for key in ("messages", "tools")})
    assert counted["input_tokens"] == len(tool_engine.submitted[-1].prompt_token_ids)


@pytest.mark.direct
async def test_tool_choices_have_their_own_names(client: Any, tool_engine: FakeEngine) -> None:
    """Choices that must be obeyed need the plugin grammar, whose absence only the real engine knows."""
    for choice, structures in ((None, None), ("auto", None), ("none", None), ("required", 2)):
        await post(client, RESPONSES, {**ASK_RESPONSES, "tool_choice": choice})
        assert_offered(tool_engine, structures)
    await post(client, RESPONSES, {**ASK_RESPONSES, "tool_choice": {"type": "function", "name": "count"}})
    assert_offered(tool_engine, 1)
    for kind, structures in (("auto", None), ("none", None), ("any", 2)):
        await post(client, MESSAGES, {**ASK_MESSAGES, "tool_choice": {"type": kind}})
        assert_offered(tool_engine, structures)
    await post(client, MESSAGES, {**ASK_MESSAGES, "tool_choice": {"type": "tool", "name": "count"}})
    assert_offered(tool_engine, 1)
    for disabled in (True, False):
        choice = {"type": "any", "disable_parallel_tool_use": disabled}
        await post(client, MESSAGES, {**ASK_MESSAGES, "tool_choice": choice})
        assert tag_of(tool_engine)["stop_after_first"] is disabled


def tag_of(engine: FakeEngine) -> Any:
    structure = engine.submitted[-1].params.structured_output
    return None if structure is None else json.loads(structure.text)


def assert_offered(engine: FakeEngine, structures: int | None) -> None:
    tag = tag_of(engine)
    assert (None if tag is None else len(tag["structures"])) == structures


async def test_text_without_tools_is_not_read_for_calls(client: Any) -> None:
    assert shown_items((await post(client, RESPONSES, {"input": "a"}))["output"]) == [TEXT]
    assert shown_blocks((await post(client, MESSAGES, {**ASK_MESSAGES, "tools": None}))["content"]) == [TEXT]


@pytest.mark.parametrize(("path", "body"), [(RESPONSES, ASK_RESPONSES), (MESSAGES, ASK_MESSAGES)])
@pytest.mark.parametrize("streams", [True, False])
async def test_a_client_that_leaves_aborts_its_request(
    client: Any, tool_engine: FakeEngine, path: str, body: dict[str, Any], streams: bool
) -> None:
    tool_engine.endless = True
    reading = asyncio.create_task(client.post(path, json={**body, "stream": streams}))
    async with asyncio.timeout(PATIENCE):
        if streams:
            response = await reading
            await response.content.readany()
            response.close()
        else:
            while not tool_engine.running:
                await asyncio.sleep(0.005)
            reading.cancel()
        while tool_engine.running or not tool_engine.aborted:
            await asyncio.sleep(0.005)
    assert not client.app[RESPONSE_STORE].responses
