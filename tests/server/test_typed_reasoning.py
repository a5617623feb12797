"""A model that reasons, in the Responses API and the Messages API: its thoughts are an item or a block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from anthropic import AsyncAnthropic
from anthropic.types import Message, RawMessageStreamEvent
from fake_engine import FakeEngine
from named_events import named_events
from openai import AsyncOpenAI
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from tiny_tokenizer import write_model_dir

from specserve.text.tokenizer import HfTokenizer

if TYPE_CHECKING:
    from pathlib import Path

RESPONSES, MESSAGES, COUNT = "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {% if m.reasoning %}<think>{{ m.reasoning }}</think>{% endif %}"
    "{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: "
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% else %}<think>\n{% endif %}"
    "{% endif %}"
)
THOUGHTS, ANSWER = "hm\n", "The answer."
TEXT = f"{THOUGHTS}</think>\n\n{ANSWER}"
USER = {"role": "user", "content": "a"}
widths = pytest.mark.parametrize("width", [1, 3, 999])


@pytest.fixture(scope="module")
def tokenizer_of_reasoner(tmp_path_factory: pytest.TempPathFactory) -> HfTokenizer:
    path: Path = tmp_path_factory.mktemp("reasoner")
    write_model_dir(path, TEMPLATE)
    return HfTokenizer.from_dir(path)


@pytest.fixture
def reasoner(tokenizer_of_reasoner: HfTokenizer) -> FakeEngine:
    return FakeEngine(tokenizer_of_reasoner, text=TEXT + "#", reason="stop")


def prompt_of(engine: FakeEngine) -> str:
    return engine.tokenizer.decode(engine.submitted[-1].prompt_token_ids)


async def post(client: Any, path: str, body: dict[str, Any]) -> Any:
    response = await client.post(path, json=body)
    assert response.status == 200, await response.text()
    return await response.json()


def num_tokens_before_the_answer(engine: FakeEngine) -> int:
    """Each token of its text is a byte or more: those that begin before the end of the mark."""
    ids = engine.tokenizer.encode(TEXT, add_special_tokens=False)
    ends = [len(engine.tokenizer.decode(ids[: i + 1])) for i in range(len(ids))]
    end = len(TEXT.partition("</think>")[0]) + len("</think>")
    return sum(begin < end for begin in (0, *ends[:-1]))


@widths
async def test_a_response_has_reasoning_and_message(connect: Any, reasoner: FakeEngine, width: int) -> None:
    reasoner.width = width
    client = await connect(reasoner)
    body = await post(client, RESPONSES, {"input": "a"})
    thoughts, message = body["output"]
    assert thoughts["content"] == [{"type": "reasoning_text", "text": THOUGHTS}]
    assert (thoughts["type"], thoughts["status"], thoughts["summary"]) == ("reasoning", "completed", [])
    assert message["content"][0]["text"] == ANSWER
    details = body["usage"]["output_tokens_details"]
    assert details == {"reasoning_tokens": num_tokens_before_the_answer(reasoner)}
    assert Response.model_validate(body).output_text == ANSWER
    chat = await post(client, "/v1/chat/completions", {"messages": [USER]})
    assert chat["usage"]["completion_tokens_details"] == details


@widths
async def test_the_events_of_a_response_that_reasons(connect: Any, reasoner: FakeEngine, width: int) -> None:
    reasoner.width = width
    events = await named_events(await connect(reasoner), RESPONSES, {"input": "a"})
    for event in events:
        TypeAdapter(ResponseStreamEvent).validate_python(event)
    deltas = [event["delta"] for event in events if event["type"] == "response.reasoning_text.delta"]
    assert "".join(deltas) == THOUGHTS
    kinds = [event["type"].removeprefix("response.") for event in events if event.get("output_index") == 0]
    assert [kind for kind in kinds if not kind.endswith("delta")] == [
        "output_item.added", "content_part.added", "reasoning_text.done", "content_part.done", "output_item.done",
    ]  # fmt: skip
    (done,) = [event for event in events if event["type"] == "response.reasoning_text.done"]
    assert done["text"] == THOUGHTS
    items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert [item["type"] for item in items] == ["reasoning", "message"]
    assert events[-1]["response"]["output"] == items


async def test_reasoning_that_is_cut_off_is_all_there_is(connect: Any, reasoner: FakeEngine) -> None:
    reasoner.text, reasoner.reason = "hm", "length"
    client = await connect(reasoner)
    body = await post(client, RESPONSES, {"input": "a"})
    (item,) = body["output"]
    assert (item["type"], item["status"], body["status"]) == ("reasoning", "incomplete", "incomplete")
    assert body["usage"]["output_tokens_details"]["reasoning_tokens"] == body["usage"]["output_tokens"]
    message = await post(client, MESSAGES, {"max_tokens": 99, "messages": [USER]})
    assert message["content"] == [{"type": "thinking", "thinking": "hm", "signature": ""}]
    assert message["stop_reason"] == "max_tokens"


@widths
async def test_a_message_has_a_thinking_block(connect: Any, reasoner: FakeEngine, width: int) -> None:
    reasoner.width = width
    body = {"max_tokens": 99, "messages": [USER]}
    client = await connect(reasoner)
    message = await post(client, MESSAGES, body)
    thoughts = {"type": "thinking", "thinking": THOUGHTS, "signature": ""}
    assert message["content"] == [thoughts, {"type": "text", "text": ANSWER}]
    Message.model_validate(message)
    events = await named_events(client, MESSAGES, body)
    for event in events:
        TypeAdapter(RawMessageStreamEvent).validate_python(event)
    of_thoughts = [event for event in events if event.get("index") == 0]
    assert of_thoughts[0]["content_block"] == {"type": "thinking", "thinking": "", "signature": ""}
    deltas = [event["delta"] for event in of_thoughts[1:-1]]
    assert "".join(delta["thinking"] for delta in deltas[:-1]) == THOUGHTS
    assert deltas[-1] == {"type": "signature_delta", "signature": ""}
    assert of_thoughts[-1]["type"] == "content_block_stop"


THOUGHT_ITEM = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "because"}]}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c", "output": "1"}
ASSISTANT = {"role": "assistant", "content": "b"}
ENCRYPTED = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": "xyz"}


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([USER, THOUGHT_ITEM, ASSISTANT, USER], "user: a\nassistant: <think>because</think>b\nuser: a\n"),
        ([USER, THOUGHT_ITEM, CALL, RESULT], "user: a\nassistant: <think>because</think>\ntool: 1\n"),
        ([USER, THOUGHT_ITEM, USER, ASSISTANT, USER], "user: a\nuser: a\nassistant: b\nuser: a\n"),
        (
            [USER, ASSISTANT, THOUGHT_ITEM, CALL, RESULT],
            "user: a\nassistant: b\nassistant: <think>because</think>\ntool: 1\n",
        ),
        ([USER, ENCRYPTED, ASSISTANT, USER], "user: a\nassistant: b\nuser: a\n"),
    ],
    ids=["message", "call", "no answer", "call behind a message", "encrypted"],
)  # fmt: skip
async def test_reasoning_that_comes_back_reaches_the_template(
    connect: Any, reasoner: FakeEngine, items: list[dict[str, Any]], expected: str
) -> None:
    await post(await connect(reasoner), RESPONSES, {"input": items})
    assert prompt_of(reasoner).startswith(expected)


async def test_a_stored_response_keeps_its_reasoning(connect: Any, reasoner: FakeEngine) -> None:
    client = await connect(reasoner)
    first = await post(client, RESPONSES, {"input": "a"})
    await post(client, RESPONSES, {"input": "c", "previous_response_id": first["id"]})
    assert prompt_of(reasoner).startswith(f"user: a\nassistant: <think>{THOUGHTS}</think>{ANSWER}\nuser: c\n")


async def test_thinking_that_comes_back_reaches_the_template(connect: Any, reasoner: FakeEngine) -> None:
    blocks = [
        {"type": "thinking", "thinking": "because", "signature": ""},
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "text", "text": "b"},
    ]
    messages = [USER, {"role": "assistant", "content": blocks}, USER]
    client = await connect(reasoner)
    answer = await post(client, MESSAGES, {"max_tokens": 99, "messages": messages})
    assert prompt_of(reasoner).startswith("user: a\nassistant: <think>because</think>b\nuser: a\n")
    counted = await post(client, COUNT, {"messages": messages})
    usage = answer["usage"]
    assert counted["input_tokens"] == usage["input_tokens"] + usage["cache_read_input_tokens"]


EFFORTS: list[tuple[str, dict[str, Any], bool]] = [
    (RESPONSES, {"reasoning": {"effort": "none"}}, False),
    (RESPONSES, {"reasoning": {"effort": "low", "summary": "auto"}}, True),
    (RESPONSES, {}, True),
    (MESSAGES, {"thinking": {"type": "disabled"}}, False),
    (MESSAGES, {"thinking": {"type": "disabled"}, "output_config": {"effort": "high"}}, False),
    (MESSAGES, {"thinking": {"type": "enabled", "budget_tokens": 1024}}, True),
    (MESSAGES, {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}, True),
    (MESSAGES, {"output_config": {"effort": "max"}}, True),
]


@pytest.mark.parametrize(("path", "fields", "expected"), EFFORTS, ids=lambda value: str(value)[:60])
async def test_the_request_turns_reasoning_on_and_off(
    connect: Any, reasoner: FakeEngine, path: str, fields: dict[str, Any], expected: bool
) -> None:
    body = {"input": "a"} if path == RESPONSES else {"max_tokens": 99, "messages": [USER]}
    client = await connect(reasoner)
    answer = await post(client, path, body | fields)
    assert prompt_of(reasoner).endswith("<think>\n" if expected else "<think></think>")
    if path == RESPONSES:
        assert answer["reasoning"]["effort"] == fields.get("reasoning", {}).get("effort")
    else:
        counted = await post(client, COUNT, {"messages": [USER], **fields})
        assert counted["input_tokens"] == len(reasoner.submitted[-1].prompt_token_ids)


async def test_a_model_that_always_reasons_cannot_be_told_not_to(connect: Any, tmp_path: Path) -> None:
    write_model_dir(tmp_path, "{% for m in messages %}{{ m.content }}{% endfor %}<think>\n")
    engine = FakeEngine(HfTokenizer.from_dir(tmp_path), text=TEXT)
    client = await connect(engine)
    body: dict[str, Any] = {"max_tokens": 99, "messages": [USER]}
    await post(client, MESSAGES, body | {"thinking": {"type": "enabled", "budget_tokens": 1024}})
    response = await client.post(MESSAGES, json=body | {"thinking": {"type": "disabled"}})
    assert response.status == 400
    assert (await response.json())["error"]["message"].startswith("thinking: the chat template of this model cannot")


async def test_openais_client_reads_reasoning_as_it_comes(connect: Any, reasoner: FakeEngine) -> None:
    url = (await connect(reasoner)).server.make_url("/v1")
    async with AsyncOpenAI(base_url=str(url), api_key="x") as client:
        async with client.responses.stream(model="fake-model", input="a") as stream:
            thoughts = [event.delta async for event in stream if event.type == "response.reasoning_text.delta"]
            answer = await stream.get_final_response()
        assert "".join(thoughts) == THOUGHTS
        assert answer.output_text == ANSWER
        again = await client.responses.create(
            model="fake-model", input=[*answer.output, {"role": "user", "content": "c"}]
        )
    assert again.output[0].content[0].text == THOUGHTS
    assert prompt_of(reasoner).startswith(f"assistant: <think>{THOUGHTS}</think>{ANSWER}\nuser: c\n")


async def test_anthropics_client_reads_thinking_as_it_comes(connect: Any, reasoner: FakeEngine) -> None:
    url = (await connect(reasoner)).server.make_url("/")
    async with AsyncAnthropic(base_url=str(url), api_key="x") as client:
        asked: dict[str, Any] = {"model": "fake-model", "max_tokens": 2048, "messages": [USER]}
        thinking = {"type": "enabled", "budget_tokens": 1024}
        async with client.messages.stream(**asked, thinking=thinking) as stream:
            thoughts = [event.thinking async for event in stream if event.type == "thinking"]
            message = await stream.get_final_message()
        assert "".join(thoughts) == THOUGHTS
        assert [block.type for block in message.content] == ["thinking", "text"]
        messages = [USER, {"role": "assistant", "content": message.content}, USER]
        await client.messages.create(**asked | {"messages": messages})
    assert prompt_of(reasoner).startswith(f"user: a\nassistant: <think>{THOUGHTS}</think>{ANSWER}\nuser: a\n")
