"""What a reasoning model writes before its answer: found in the text as it comes.

The chat template tells whether a model reasons, and the end of the prompt whether it reasons already, or is not to.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from specserve.text.stop_strings import partial_match_length
from specserve.types import Reasoning
from specserve_server.generation.answer_tags import AnswerTags
from specserve_server.generation.harmony import HARMONY, HarmonyStream, writes_harmony
from specserve_server.generation.thought_stream import Split

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_server.engine_client import ServerTokenizer
    from specserve_server.generation.thought_stream import ThoughtStream
    from specserve_server.templates.model_template import ModelTemplate

MARKS = (
    Reasoning("<think>", "</think>"),
    Reasoning("[THINK]", "[/THINK]"),
    Reasoning("<|channel>thought", "<channel|>"),  # Gemma 4
)
RESPONSE = "<response>"
"""In front of an answer of Granite 3, behind its thoughts."""
SPECIAL = re.compile(r"<[^<>\s]+>|\[[A-Z/_]+\]")
"""What may be a special token."""
TAIL = 16
"""Tokens at the prompt's end, which may be such a mark and blanks."""


def reasoning_after(
    template: ModelTemplate, tokenizer: ServerTokenizer, prompt: Sequence[int], continued: str = ""
) -> Reasoning | None:
    """None where the answer begins at once. `begin` is "" where the prompt has begun to reason. `continued`: the text
    of the assistant that the prompt ends with, if it is one."""
    if writes_harmony(template):
        return HARMONY
    source = template.source
    marks = next((marks for marks in MARKS if marks.end in source or marks.begin in source), None)
    if marks is None:
        return None
    if RESPONSE in source:
        marks = msgspec.structs.replace(marks, answer=RESPONSE)
    if continued:
        return begun(marks) if continued.rfind(marks.begin) > continued.rfind(marks.end) else None
    end = tokenizer.decode(prompt[-TAIL:], skip_special_tokens=False).rstrip()
    if end.endswith(marks.end):
        return None
    return begun(marks) if end.endswith(marks.begin) else marks


def begun(marks: Reasoning) -> Reasoning:
    return msgspec.structs.replace(marks, begin="")


def thought_stream(marks: Reasoning) -> ThoughtStream:
    return HarmonyStream() if marks == HARMONY else ReasoningStream(marks)


def has_special_tokens(tokenizer: ServerTokenizer, marks: Reasoning) -> bool:
    return any(map(tokenizer.is_special, SPECIAL.findall(marks.end)))


class ReasoningStream:
    """A `ThoughtStream`. Blanks behind a mark belong to nothing."""

    def __init__(self, marks: Reasoning) -> None:
        self.marks = marks
        self.tags = AnswerTags(marks.answer)
        self.held = ""
        self.num_pushed = 0
        self.end: int | None = None
        self.read = self.beginning if marks.begin else self.begun

    def push(self, text: str, *, final: bool = False) -> Split:
        self.held += text
        self.num_pushed += len(text)
        return self.read(final)

    # Each state takes what it can of `held`.

    def beginning(self, final: bool) -> Split:
        begun, begin = self.held.lstrip(), self.marks.begin
        if begun.startswith(begin):
            self.held, self.read = begun.removeprefix(begin), self.begun
            return self.begun(final)
        if begin.startswith(begun) and not final:
            return Split("", "")
        self.read, self.end = self.answer, 0
        return self.answer(final)

    def begun(self, final: bool) -> Split:
        self.held = self.held.lstrip()
        if self.held:
            self.read = self.inside
        return self.inside(final)

    def inside(self, final: bool) -> Split:
        before, end, after = self.held.partition(self.marks.end)
        if end:
            self.held, self.read, self.end = after, self.behind, self.num_pushed - len(after)
            return Split(before, self.behind(final).content)
        keep = 0 if final else partial_match_length((self.marks.end,), self.held)
        shown = len(self.held) - keep
        reasoning, self.held = self.held[:shown], self.held[shown:]
        return Split(reasoning, "")

    def behind(self, final: bool) -> Split:
        self.held = self.held.lstrip()
        if self.held:
            self.read = self.answer
        return self.answer(final)

    def answer(self, final: bool) -> Split:
        content, self.held = self.held, ""
        return Split("", self.tags.push(content, final=final))
