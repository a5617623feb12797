"""What a reasoning model writes before its answer: found in the text as it comes.

The chat template tells whether a model reasons, and the end of the prompt whether it reasons already, or is not to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve.text.stop_strings import partial_match_length
from specserve.types import Reasoning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_server.engine_client import ServerTokenizer
    from specserve_server.templates.model_template import ModelTemplate

MARKS = (Reasoning("<think>", "</think>"), Reasoning("[THINK]", "[/THINK]"))
TAIL = 16
"""Tokens at the prompt's end, which may be such a mark and blanks."""


def reasoning_after(
    template: ModelTemplate, tokenizer: ServerTokenizer, prompt: Sequence[int], continued: str = ""
) -> Reasoning | None:
    """None where the answer begins at once. `begin` is "" where the prompt has begun to reason. `continued`: the text
    of the assistant that the prompt ends with, if it is one."""
    marks = next((marks for marks in MARKS if marks.end in template.source), None)
    if marks is None:
        return None
    if continued:
        return Reasoning("", marks.end) if continued.rfind(marks.begin) > continued.rfind(marks.end) else None
    end = tokenizer.decode(prompt[-TAIL:], skip_special_tokens=False).rstrip()
    if end.endswith(marks.end):
        return None
    return Reasoning("", marks.end) if end.endswith(marks.begin) else marks


class Split(NamedTuple):
    reasoning: str
    content: str


class ReasoningStream:
    """`push` takes the next piece of the text, with `final` the last one. Blanks behind a mark belong to nothing.

    `end`: how many characters of the text precede the answer, marks included; None while this is not known.
    """

    def __init__(self, marks: Reasoning) -> None:
        self.marks = marks
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
        return Split("", content)
