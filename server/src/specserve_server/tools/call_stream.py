"""Finds tool calls in a text that comes piece by piece: text, names of tools, and arguments as they come.

Knows forms, and nothing of responses. What begins like a call and is none stays text, and nothing is lost but blanks
and marks around calls. What a state decides, it decides by the beginning of the text that is held, however long that
is: so the answer does not depend on the pieces.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from specserve.text.stop_strings import find_stop_string, partial_match_length
from specserve_server.tools.call_object import CallObject
from specserve_server.tools.json_value import JsonValue
from specserve_server.tools.pieces import CallPiece, Parsed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

MAX_OPENING = 64
"""Blanks and marks between a trigger and what a call begins with."""
MAX_PIECE = 4096
"""Characters that are read at once: what is held stays short, so that the time is linear in the text."""


class CallStream(ABC):
    """`push` takes the next piece of the text, with `final` the last one."""

    def __init__(self, names: Collection[str]) -> None:
        self.names = names
        self.held = ""
        self.num_calls = 0
        """Calls that were found, the last one perhaps in part."""
        self.state: Callable[[Parsed, bool], bool] = self.text

    def push(self, text: str, *, final: bool = False) -> Parsed:
        parsed = Parsed()
        for at in range(0, max(1, len(text)), MAX_PIECE):
            self.held += text[at : at + MAX_PIECE]
            is_last = final and at + MAX_PIECE >= len(text)
            while self.state(parsed, is_last):
                pass
        return parsed

    # Each state reads what it can of `held` and tells whether another state is to go on. With `final` the text has
    # ended, and what is held is shown.

    @abstractmethod
    def text(self, parsed: Parsed, final: bool) -> bool:
        """Before the first call."""

    def flush(self, parsed: Parsed) -> None:
        parsed.add_text(self.held)
        self.held = ""

    def blanks(self, parsed: Parsed, final: bool) -> bool:
        """Behind a call they are no text."""
        self.held = self.held.lstrip()
        if self.held:
            self.state = self.text
        return bool(self.held)


class TriggeredStream(CallStream):
    """One of several triggers begins a call anywhere in the text."""

    triggers: tuple[str, ...]
    trigger = ""
    """The one that was found last."""

    def text(self, parsed: Parsed, final: bool) -> bool:
        found = find_stop_string(self.triggers, "", self.held)
        if found is not None:
            parsed.add_text(self.held[: found.start])
            self.trigger, self.state = found.stop, self.opening
            self.held = self.held[found.start + len(found.stop) :]
            return True
        keep = 0 if final else partial_match_length(self.triggers, self.held)
        shown = len(self.held) - keep
        parsed.add_text(self.held[:shown])
        self.held = self.held[shown:]
        return False

    @abstractmethod
    def opening(self, parsed: Parsed, final: bool) -> bool:
        """Behind the trigger."""

    def no_call(self, parsed: Parsed) -> bool:
        """What follows the trigger may have another one."""
        parsed.add_text(self.trigger)
        self.state = self.text
        return True


class ArgumentsStream(CallStream):
    """A call is a name, and then its arguments as one JSON value."""

    value: JsonValue

    def begin_arguments(self, parsed: Parsed, name: str, at: int) -> bool:
        """They begin at a position of `held`."""
        parsed.pieces.append(CallPiece(self.num_calls, name))
        self.num_calls += 1
        self.held, self.value, self.state = self.held[at:], JsonValue(), self.arguments
        return True

    def arguments(self, parsed: Parsed, final: bool) -> bool:
        count = self.value.take(self.held)
        if count:
            parsed.pieces.append(CallPiece(self.num_calls - 1, None, self.value.shown()))
        self.held = self.held[count:]
        if self.value.done:
            self.state = self.behind_arguments
        return self.value.done

    def behind_arguments(self, parsed: Parsed, final: bool) -> bool:
        return self.blanks(parsed, final)


class ObjectStream(CallStream):
    """Calls are JSON objects."""

    call: CallObject

    def begin_object(self, at: int, before: str = "") -> bool:
        """The object begins at a position of `held`. `before`: what precedes that, and is text where this is no
        call."""
        self.call = CallObject(self.names, self.num_calls, before + self.held[:at])
        self.held = self.held[at:]
        self.state = self.object
        return True

    def object(self, parsed: Parsed, final: bool) -> bool:
        call = self.call
        self.held = self.held[call.take(self.held) :]
        ended = call.done or call.refused
        if final and not ended:
            call.finish()
        self.show(parsed, ended or final)
        if ended:
            self.state = self.after if self.is_call() else self.no_object
        return ended

    def is_call(self) -> bool:
        """Whether the object that has ended is one."""
        return self.call.done

    def no_object(self, parsed: Parsed, final: bool) -> bool:
        """Behind what turned out to be no call, or not all of one."""
        self.state = self.text
        return True

    def show(self, parsed: Parsed, is_last: bool) -> None:
        """Of the object, what can be shown."""
        call = self.call
        parsed.pieces += call.taken_pieces()
        if is_last:
            self.num_calls += call.begun
            if not call.done:
                parsed.add_text(call.unshown)

    @abstractmethod
    def after(self, parsed: Parsed, final: bool) -> bool:
        """Behind an object."""


def width_of_blanks(text: str, others: str = "") -> int:
    return len(text) - len(text.lstrip(" \t\r\n" + others))
