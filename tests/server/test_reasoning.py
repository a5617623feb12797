"""A model that reasons before it answers: its thoughts have a field of their own, whole and in streams."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from fake_engine import FakeEngine
from hypothesis import given
from hypothesis import strategies as st
from tiny_tokenizer import write_model_dir

from specserve.text.tokenizer import HfTokenizer
from specserve.types import Reasoning
from specserve_server.generation.reasoning import MARKS, ReasoningStream, reasoning_after
from specserve_server.templates.model_template import read_model_template

if TYPE_CHECKING:
    from pathlib import Path

CHAT = "/v1/chat/completions"
THINK = MARKS[0]
INSIDE = Reasoning("", THINK.end)
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content.split('</think>')[-1] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: "
    "{% if messages[-1].content == 'begin' %}<think>\n{% elif messages[-1].content == 'do not' %}<think></think>\n"
    "{% endif %}{% endif %}"
)
TEXTS = [
    # text, of a prompt that has begun to reason, reasoning, answer
    ("<think>\nhm, </thin 5 < 7\n</think>\n\nThe answer.", False, "hm, </thin 5 < 7\n", "The answer."),
    ("hm\n</think>\nThe answer. <think>no</think>", True, "hm\n", "The answer. <think>no</think>"),
    ("The answer.", False, "", "The answer."),
    (" <think>", False, "", ""),
    ("<thi", False, "", "<thi"),
    ("cut off </th", True, "cut off </th", ""),
    ("", True, "", ""),
]


@pytest.fixture(scope="module")
def reasoning_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> HfTokenizer:
    path: Path = tmp_path_factory.mktemp("reasons")
    write_model_dir(path, TEMPLATE)
    return HfTokenizer.from_dir(path)


def split(text: str, marks: Reasoning, sizes: list[int]) -> tuple[str, str]:
    stream, reasoning, answer = ReasoningStream(marks), "", ""
    at = 0
    for size in [*sizes, len(text)]:
        piece, at = text[at : at + size], at + size
        found = stream.push(piece, final=at >= len(text))
        reasoning, answer = reasoning + found.reasoning, answer + found.content
        if at >= len(text):
            break
    return reasoning, answer


@given(st.sampled_from(TEXTS), st.lists(st.integers(1, 5), max_size=60))
def test_however_the_text_comes_it_is_split_alike(case: tuple[str, bool, str, str], sizes: list[int]) -> None:
    text, is_inside, reasoning, answer = case
    assert split(text, INSIDE if is_inside else THINK, sizes) == (reasoning, answer)


@pytest.mark.parametrize(
    ("content", "expected"), [("anything", THINK), ("begin", INSIDE), ("do not", None)], ids=["may", "does", "must not"]
)
def test_the_end_of_the_prompt_tells_whether_the_model_reasons(
    reasoning_tokenizer: HfTokenizer, content: str, expected: Reasoning | None
) -> None:
    template = read_model_template(reasoning_tokenizer.path)
    prompt = reasoning_tokenizer.encode(template.render([{"role": "user", "content": content}]))
    assert reasoning_after(template, reasoning_tokenizer, prompt) == expected


@pytest.mark.parametrize(
    ("continued", "expected"), [("<think>hm", INSIDE), ("<think>hm</think>Well", None), ("Well", None)]
)
def test_a_message_that_is_continued_may_have_begun_to_reason(
    reasoning_tokenizer: HfTokenizer, continued: str, expected: Reasoning | None
) -> None:
    template, prompt = read_model_template(reasoning_tokenizer.path), reasoning_tokenizer.encode(continued)
    assert reasoning_after(template, reasoning_tokenizer, prompt, continued) == expected


def test_a_template_without_marks_is_that_of_a_model_that_does_not_reason(tokenizer: HfTokenizer) -> None:
    assert reasoning_after(read_model_template(tokenizer.path), tokenizer, tokenizer.encode("<think>")) is None


@pytest.mark.parametrize("width", [1, 3, 999])
async def test_chat_has_reasoning_and_content_apart(connect: Any, reasoning_tokenizer: HfTokenizer, width: int) -> None:
    engine = FakeEngine(reasoning_tokenizer, text="hm\n</think>\n\nThe answer.", width=width)
    client = await connect(engine)
    body = {"messages": [{"role": "user", "content": "begin"}]}
    answer = await (await client.post(CHAT, json=body)).json()
    message = answer["choices"][0]["message"]
    assert message["content"] == "The answer."
    assert message["reasoning"] == message["reasoning_content"] == "hm\n"
    text = await (await client.post(CHAT, json=body | {"stream": True})).text()
    deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in text.split("\n\n") if line.startswith("data: {")]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "hm\n"
    assert "".join(delta.get("content", "") for delta in deltas) == "The answer."
    assert deltas[0]["role"] == "assistant"


async def test_a_form_holds_from_the_end_of_the_reasoning_on(connect: Any, reasoning_tokenizer: HfTokenizer) -> None:
    engine = FakeEngine(reasoning_tokenizer, output_kinds=frozenset({"json_object"}))
    client = await connect(engine)
    for content, expected in (("anything", THINK), ("begin", INSIDE), ("do not", None)):
        body = {"messages": [{"role": "user", "content": content}], "response_format": {"type": "json_object"}}
        assert (await client.post(CHAT, json=body)).status == 200
        structure = engine.submitted[-1].params.structured_output
        assert structure is not None
        assert structure.reasoning == expected
