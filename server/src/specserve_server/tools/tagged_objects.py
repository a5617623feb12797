"""Calls that are JSON objects, or lists of them, between two marks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_server.tools.call_stream import MAX_OPENING, ObjectStream, TriggeredStream, width_of_blanks

if TYPE_CHECKING:
    from collections.abc import Collection

    from specserve_server.tools.pieces import Parsed


class TaggedStream(TriggeredStream, ObjectStream):
    """`end`: the mark behind the objects, which models leave out at times; "" for a form that has none."""

    def __init__(self, names: Collection[str], triggers: tuple[str, ...], end: str) -> None:
        super().__init__(names)
        self.triggers, self.end, self.in_list = triggers, end, False

    def opening(self, parsed: Parsed, final: bool) -> bool:
        at = width_of_blanks(self.held[:MAX_OPENING], "[")
        if self.held[at : at + 1] == "{":
            self.in_list = "[" in self.trigger + self.held[:at]
            return self.begin_object(at, self.trigger)
        if len(self.held) > at or at == MAX_OPENING or final:
            return self.no_call(parsed)
        return False

    def after(self, parsed: Parsed, final: bool) -> bool:
        """The end, or another object: some models write several between the marks."""
        inner = self.held[width_of_blanks(self.held, "]" if self.in_list else "") :]
        if self.end and inner.startswith(self.end):
            self.held, self.state = inner[len(self.end) :], self.blanks
            return True
        at = width_of_blanks(self.held, ",;")
        if self.held[at : at + 1] == "{":
            return self.begin_object(at)
        waits = at == len(self.held) or self.end.startswith(inner)
        if waits and not final:
            return False
        self.held = "" if self.end.startswith(inner) else inner
        self.state = self.text
        return bool(self.held)
