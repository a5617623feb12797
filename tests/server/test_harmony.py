"""gpt-oss' answers: channels are told apart, special tokens reach no client, and earlier turns fit the template."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import family_templates
import pytest
from fake_engine import FakeEngine
from hypothesis import given, settings
from hypothesis import strategies as st
from named_events import named_events
from tool_texts import cut

from specserve_server.generation.harmony import HARMONY, HarmonyStream

if TYPE_CHECKING:
    from pathlib import Path

    from specserve.text.tokenizer import HfTokenizer

ANALYSIS, FINAL, NEXT = "<|channel|>analysis<|message|>", "<|channel|>final<|message|>", "<|end|><|start|>assistant"
PREAMBLE = "<|channel|>commentary<|message|>"
CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}'
OTHER_CALL = ' to=functions.f<|channel|>commentary json<|message|>{"a": 1}'
TEXTS = (
    # text, reasoning, content, where the answer begins
    (f"{ANALYSIS}hm{NEXT}{FINAL}Hi<|return|>", "hm", "Hi", f"{ANALYSIS}hm{NEXT}{FINAL}"),
    (f"{FINAL}Hi", "", "Hi", ""),
    (f"{ANALYSIS}hm{NEXT}{ANALYSIS}more", "hm\n\nmore", "", None),
    (f"{ANALYSIS}hm{NEXT}{PREAMBLE}Wait.{NEXT}{FINAL}Hi", "hm", "Wait.\n\nHi", f"{ANALYSIS}hm{NEXT}{PREAMBLE}"),
    (f"{ANALYSIS}hm{NEXT}{CALL}<|call|>", "hm", f"{CALL}<|call|>", f"{ANALYSIS}hm{NEXT}{CALL[:-8]}"),
    (OTHER_CALL, "", CALL, ""),
    (f"<|start|>assistant{FINAL}Hi", "", "Hi", ""),
    (f"{ANALYSIS}hm<|start|>assistant{FINAL}Hi", "hm", "Hi", f"{ANALYSIS}hm<|start|>assistant{FINAL}"),
    (f"{ANALYSIS}hm{FINAL}Hi", "hm", "Hi", f"{ANALYSIS}hm{FINAL}"),
    ("no header at all", "", "no header at all", ""),
    ("<|channel|>wrong\nheader", "", "<|channel|>wrong\nheader", ""),
    (f"{ANALYSIS}hm{NEXT}<|channel|>fin", "hm", "", None),
    (f"{ANALYSIS}hm{NEXT}<|channel|>final", "hm", "", None),
    (f"{ANALYSIS}a < b <| c <|en", "a < b <| c <|en", "", None),
    ("", "", "", None),
)  # fmt: skip
PARTS = (
    *("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>", "<|constrain|>", "assistant"),
    *("analysis", "final", "commentary", " to=functions.f", "json", " TEXT", "\n", " ", "<|", "é", '{"a": 1}'),
)


def split(pieces: list[str]) -> tuple[str, str, int | None]:
    stream, reasoning, content = HarmonyStream(), "", ""
    for i, piece in enumerate(pieces):
        found = stream.push(piece, final=i + 1 == len(pieces))
        reasoning, content = reasoning + found.reasoning, content + found.content
    return reasoning, content, stream.end


@pytest.mark.parametrize(("text", "reasoning", "content", "begin"), TEXTS)
def test_channels_are_reasoning_or_content_however_the_text_comes(
    text: str, reasoning: str, content: str, begin: str | None
) -> None:
    whole = split([text])
    assert whole[:2] == (reasoning, content)
    if begin is not None:
        assert whole[2] == len(begin)
    for at in range(len(text) + 1):
        assert split([text[:at], text[at:]]) == whole
    assert split([*text, ""]) == whole


@settings(max_examples=400)
@given(st.lists(st.sampled_from(PARTS), max_size=25).map("".join), st.lists(st.integers(0, 400), max_size=10))
def test_any_text_is_split_alike_and_loses_no_word(text: str, cuts: list[int]) -> None:
    reasoning, content, end = split([text])
    assert split(cut(text, cuts)) == split([*text, ""]) == (reasoning, content, end)
    kept = (reasoning + content).count("TEXT")
    assert text.count("TEXT") - in_headers(text) <= kept <= text.count("TEXT")


def in_headers(text: str) -> int:
    """How often it stands in front of the mark of a message, where it may be a part of the header."""
    *segments, _ = re.split(r"(<\|message\|>|<\|end\|>|<\|call\|>|<\|return\|>|\n)", text)
    pairs = zip(segments[::2], segments[1::2], strict=True)
    return sum(segment.count("TEXT") for segment, mark in pairs if mark == "<|message|>")


@pytest.fixture(scope="module")
def gpt_oss(tmp_path_factory: pytest.TempPathFactory) -> HfTokenizer:
    path: Path = tmp_path_factory.mktemp("gpt_oss")
    return family_templates.tokenizer_of(path, family_templates.HARMONY, "harmony")


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
USER = {"role": "user", "content": "q"}
CHAT = "/v1/chat/completions"
widths = pytest.mark.parametrize("width", [1, 3, 999])


async def post(client: Any, path: str, body: dict[str, Any]) -> Any:
    response = await client.post(path, json=body)
    assert response.status == 200, await response.text()
    return await (response.text() if body.get("stream") else response.json())


@widths
async def test_chat_has_thoughts_preamble_and_call_apart(connect: Any, gpt_oss: HfTokenizer, width: int) -> None:
    text = f"{ANALYSIS}hm{NEXT}{PREAMBLE}Wait.{NEXT}{CALL}<|call|>"
    client = await connect(FakeEngine(gpt_oss, text=text, width=width, reason="stop", max_model_len=4096))
    body = {"messages": [USER], "tools": [TOOL]}
    (choice,) = (await post(client, CHAT, body))["choices"]
    message = choice["message"]
    assert (message["reasoning_content"], message["content"]) == ("hm", "Wait.")
    assert [call["function"] for call in message["tool_calls"]] == [{"name": "f", "arguments": '{"a": 1}'}]
    assert choice["finish_reason"] == "tool_calls"
    lines = (await post(client, CHAT, body | {"stream": True})).split("\n\n")
    deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in lines if line.startswith("data: {")]
    assert "".join(delta.get("reasoning", "") for delta in deltas) == "hm"
    assert "".join(delta.get("content") or "" for delta in deltas) == "Wait."
    pieces = [call["function"] for delta in deltas for call in delta.get("tool_calls", [])]
    assert "".join(piece.get("arguments", "") for piece in pieces) == '{"a": 1}'


async def test_the_text_ends_at_the_mark_of_a_call_and_thoughts_are_counted(connect: Any, gpt_oss: HfTokenizer) -> None:
    engine = FakeEngine(gpt_oss, text=f"{ANALYSIS}hm{NEXT}{FINAL}Hi<|return|>", reason="stop", max_model_len=4096)
    client = await connect(engine)
    answer = await post(client, CHAT, {"messages": [USER], "tools": [TOOL]})
    params = engine.submitted[-1].params
    ends = [gpt_oss.encode(mark, add_special_tokens=False)[0] for mark in ("<|call|>", "<|return|>")]
    assert params.stop_token_ids == tuple(ends)
    assert not params.skip_special_tokens
    ids = gpt_oss.encode(f"{ANALYSIS}hm{NEXT}{FINAL}", add_special_tokens=False)
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == len(ids)
    assert answer["choices"][0]["message"]["content"] == "Hi"


@widths
async def test_the_typed_apis_have_thoughts_text_and_call(connect: Any, gpt_oss: HfTokenizer, width: int) -> None:
    text = f"{ANALYSIS}hm{NEXT}{PREAMBLE}Wait.{NEXT}{OTHER_CALL}<|call|>"
    client = await connect(FakeEngine(gpt_oss, text=text, width=width, reason="stop", max_model_len=4096))
    flat = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
    answer = await post(client, "/v1/responses", {"input": "q", "tools": [flat]})
    thoughts, told, call = answer["output"]
    assert thoughts["content"][0]["text"] == "hm"
    assert told["content"][0]["text"] == "Wait."
    assert (call["name"], call["arguments"]) == ("f", '{"a": 1}')
    body = {"messages": [USER], "max_tokens": 500, "tools": [{"name": "f", "input_schema": {"type": "object"}}]}
    blocks = (await post(client, "/v1/messages", body))["content"]
    shown = [block.get("thinking") or block.get("text") or block["input"] for block in blocks]
    assert shown == ["hm", "Wait.", {"a": 1}]
    events = await named_events(client, "/v1/messages", body)
    kinds = [event["content_block"]["type"] for event in events if "content_block" in event]
    assert kinds == ["thinking", "text", "tool_use"]


def prompt_of(engine: FakeEngine) -> str:
    ids = engine.submitted[-1].prompt_token_ids
    return engine.tokenizer.decode(ids, skip_special_tokens=False)


async def test_earlier_calls_have_a_message_each_with_thoughts_and_their_result(
    connect: Any, gpt_oss: HfTokenizer
) -> None:
    engine = FakeEngine(gpt_oss, text=f"{FINAL}Hi", max_model_len=4096)
    client = await connect(engine)
    calls = [{"id": i, "type": "function", "function": {"name": "f", "arguments": f'{{"a": {i}}}'}} for i in "12"]
    turns = [
        USER,
        {"role": "assistant", "content": "Wait.", "reasoning": "hm", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "1", "content": "one"},
        {"role": "tool", "tool_call_id": "2", "content": "two"},
    ]
    body = {"messages": turns, "tools": [TOOL], "reasoning_effort": "high"}
    await post(client, CHAT, body | {"chat_template_kwargs": {"model_identity": "You are me.", "builtin_tools": ["x"]}})
    prompt, call = prompt_of(engine), "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>"
    assert "You are me." in prompt
    assert "Reasoning: high x" in prompt
    result = "<|start|>functions.f to=assistant<|channel|>commentary<|message|>"
    assert prompt.endswith(
        f"<|start|>user<|message|>q<|end|><|start|>assistant{ANALYSIS}hm\n\nWait.<|end|>"
        f'{call}{{"a": 1}}<|call|>{result}one<|end|>{call}{{"a": 2}}<|call|>{result}two<|end|><|start|>assistant'
    )


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        ({"response_format": {"type": "json_object"}}, HARMONY.answer),
        ({"tools": [TOOL], "tool_choice": "required"}, ""),
    ],
    ids=["a form", "a required call"],
)
async def test_a_form_holds_behind_the_thoughts_of_all_channels(
    connect: Any, gpt_oss: HfTokenizer, fields: dict[str, Any], answer: str
) -> None:
    engine = FakeEngine(gpt_oss, text=f"{FINAL}{{}}", max_model_len=4096)
    engine.output_kinds = frozenset({"json_object", "structural_tag"})
    client = await connect(engine)
    await post(client, CHAT, {"messages": [USER], **fields})
    structure = engine.submitted[-1].params.structured_output
    assert structure is not None
    assert structure.reasoning is not None
    assert (structure.reasoning.begin, structure.reasoning.others) == (ANALYSIS, (PREAMBLE,))
    assert structure.reasoning.answer == answer
