"""Hermes' form, also Qwen's: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, as often as wanted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from specserve_server.tools.call_stream import MAX_OPENING, TriggeredStream, width_of_blanks
from specserve_server.tools.form import ToolForm

if TYPE_CHECKING:
    from collections.abc import Collection

    from specserve_server.tools.pieces import Parsed

TRIGGER, END = "<tool_call>", "</tool_call>"


class Hermes(ToolForm):
    name = "hermes"
    trigger = TRIGGER
    marks: ClassVar[tuple[str, ...]] = (TRIGGER, END)
    end = f"}}\n{END}"
    separator = "\n"
    list_marks = ("<tools>\n", "\n</tools>")
    result_marks = ("<tool_response>\n", "\n</tool_response>")

    def begin(self, name: str) -> str:
        return f'{TRIGGER}\n{{"name": "{name}", "arguments": '

    def stream(self, names: Collection[str]) -> HermesStream:
        return HermesStream(names)

    def is_in(self, written: str, name: str) -> bool:
        return bool(re.search(rf'{TRIGGER}\s*\{{[^<]*"{name}"', written))


class HermesStream(TriggeredStream):
    trigger = TRIGGER

    def opening(self, parsed: Parsed, final: bool) -> bool:
        at = width_of_blanks(self.held[:MAX_OPENING])
        if self.held[at : at + 1] == "{":
            return self.begin_object(at, TRIGGER)
        if len(self.held) > at or at == MAX_OPENING or final:
            return self.no_call(parsed)
        return False

    def after(self, parsed: Parsed, final: bool) -> bool:
        """The end, or another object: some models write several between the tags."""
        inner = self.held.lstrip()
        if inner.startswith(END):
            self.held, self.state = inner[len(END) :], self.blanks
            return True
        at = width_of_blanks(self.held, ",;")
        if self.held[at : at + 1] == "{":
            return self.begin_object(at)
        waits = at == len(self.held) or END.startswith(inner)
        if waits and not final:
            return False
        self.held = "" if END.startswith(inner) else inner
        self.state = self.text
        return bool(self.held)


HERMES = Hermes()
