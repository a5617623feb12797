"""gpt-oss' answers: messages on channels, read as reasoning and content while they come.

    <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...<|return|>

"analysis" is reasoning; "final", and "commentary" that is sent to no one, are content. A message to a function stays as
it is, under one header, for the form of tool calls. Source: OpenAI's description of the harmony response format. Knows
no tools.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from specserve.text.stop_strings import find_stop_string, partial_match_length
from specserve.types import Reasoning
from specserve_server.generation.thought_stream import Split

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve_server.templates.model_template import ModelTemplate

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
END, RETURN, CALL = "<|end|>", "<|return|>", "<|call|>"
ENDS = (END, RETURN, CALL, START, CHANNEL)
"""Of a message. The last two begin another one, of a model that forgot the end."""
NEXT = f"{END}{START}assistant"
HARMONY = Reasoning(f"{CHANNEL}analysis{MESSAGE}", NEXT, (f"{CHANNEL}commentary{MESSAGE}",), f"{CHANNEL}final{MESSAGE}")
MAX_HEADER = 512
BEGINNINGS = (START, CHANNEL, " to=", "to=", CONSTRAIN, MESSAGE)
HEADER_ENDS = (MESSAGE, END, RETURN, CALL, "\n")
FUNCTION = re.compile(r"\bto=(functions\.[^\s<]+)")
BEGUN_HEADER = re.compile(r"(<\|(start|constrain)\|>|<\|channel\|>[a-z]*|assistant|json|to=[\w.-]*|\s)*")
MAX_PIECE = 4096
"""Characters that are read at once, so that the time is linear in the text."""
BETWEEN = "\n\n"
"""Between two messages of one field."""
Kind = Literal["reasoning", "content", "call"]


def writes_harmony(template: ModelTemplate) -> bool:
    return CHANNEL in template.source and MESSAGE in template.source


class HarmonyStream:
    """A `ThoughtStream`. A text without a header is content."""

    def __init__(self) -> None:
        self.held = ""
        self.num_pushed = 0
        self.end: int | None = None
        self.kind: Kind = "content"
        self.found: dict[Kind, str] = {}
        self.has_shown: set[Kind] = set()
        """Fields of earlier messages, and of this one."""
        self.is_new = True
        """Whether nothing of the message is shown yet."""
        self.state: Callable[[bool], bool] = self.header

    def push(self, text: str, *, final: bool = False) -> Split:
        self.found = {"reasoning": "", "content": ""}
        for at in range(0, max(1, len(text)), MAX_PIECE):
            piece = text[at : at + MAX_PIECE]
            self.held += piece
            self.num_pushed += len(piece)
            is_last = final and at + MAX_PIECE >= len(text)
            while self.state(is_last):
                pass
        return Split(self.found["reasoning"], self.found["content"])

    # Each state reads what it can of `held` and tells whether another state is to go on.

    def header(self, final: bool) -> bool:
        if not self.held or (not final and any(each.startswith(self.held) for each in BEGINNINGS)):
            return False
        if not self.held.startswith(BEGINNINGS):
            return self.begin("content", "")
        head = self.held[:MAX_HEADER]
        found = find_stop_string(HEADER_ENDS, "", head)
        if found is not None and found.stop == MESSAGE:
            return self.begin_message(head[: found.start])
        if found is None and len(head) < MAX_HEADER and not final:
            return False
        if found is None and final and BEGUN_HEADER.fullmatch(head):  # cut off: nothing was said
            self.held = ""
            return self.begin("content", "")
        broken = head if found is None else head[: found.start]  # no header: it is content
        self.held = self.held[len(broken) :]
        return self.begin("content", broken)

    def begin_message(self, header: str) -> bool:
        self.held = self.held[len(header) + len(MESSAGE) :]
        function = FUNCTION.search(header)
        if function is not None:
            return self.begin("call", f"{CHANNEL}commentary to={function[1]} {CONSTRAIN}json{MESSAGE}")
        channel = header.rpartition(CHANNEL)[2].strip()
        return self.begin("reasoning" if channel.startswith("analysis") else "content", "")

    def begin(self, kind: Kind, text: str) -> bool:
        self.kind, self.is_new, self.state = kind, True, self.body
        if kind != "reasoning" and self.end is None:
            self.end = self.num_pushed - len(self.held) if self.has_shown else 0
        if text:
            self.show(text)
        return True

    def body(self, final: bool) -> bool:
        found = find_stop_string(ENDS, "", self.held)
        if found is not None:
            self.show(self.held[: found.start])
            self.held = self.held[found.start + len(found.stop) :]
            if found.stop in (START, CHANNEL):
                self.held = found.stop + self.held
            elif self.kind == "call":
                self.show(CALL)
            self.state = self.header
            return True
        keep = 0 if final else partial_match_length(ENDS, self.held)
        shown = len(self.held) - keep
        self.show(self.held[:shown])
        self.held = self.held[shown:]
        return False

    def show(self, text: str) -> None:
        if not text:
            return
        field: Kind = "reasoning" if self.kind == "reasoning" else "content"
        if self.is_new and self.kind != "call" and field in self.has_shown:
            text = BETWEEN + text
        self.is_new = False
        self.has_shown.add(field)
        self.found[field] += text
