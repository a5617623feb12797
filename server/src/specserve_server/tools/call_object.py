"""A call that is written as one JSON object, `{"name": ..., "arguments": ...}`, read as it comes.

It is a call if it names an offered tool and has nothing but the keys of a call. Every character decides for itself, so
that what is read does not depend on the pieces in which it comes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from specserve_server.tools.json_value import JsonValue, arguments_of
from specserve_server.tools.pieces import CallPiece

if TYPE_CHECKING:
    from collections.abc import Callable, Container

ARGUMENTS = ("arguments", "parameters")
KEYS = ("name", "type", "id", *ARGUMENTS)
"""`type` is "function" and `id` some text: what the API says of every call."""
VALUE_BEGINS = frozenset('{["tfn-0123456789')
MAX_SCALAR = 512
"""Characters of a value beside the arguments."""


class CallObject:
    """`take` reads until the object is `done`, or `refused`: what it has read is no call then, or not all of it.

    `unshown`: the text that was read and of which no piece tells, `before` included; where the object is refused, it
    is text. `whole` has the pieces, too. With the name known, arguments come as they are written."""

    def __init__(self, names: Container[str], index: int, before: str = "") -> None:
        self.names = names
        self.index = index
        self.unshown = self.whole = before
        self.pieces: list[CallPiece] = []
        self.name: str | None = None
        self.arguments: str | None = None  # that wait for the name
        self.has_arguments = self.begun = self.done = self.refused = False
        self.keys: set[str] = set()
        self.key = self.written = ""
        self.value = JsonValue()
        self.state: Callable[[str, int], int] = self.opening

    def take(self, text: str) -> int:
        """How many characters were read; what follows them is no part of the object."""
        start = 0
        while start < len(text) and not self.done:
            state = self.state
            end = state(text, start)
            if end < 0:
                self.refused = True
                break
            if state not in (self.shown_value, self.rewritten_value):
                self.unshown += text[start:end]
            start = end
        self.whole += text[:start]
        return start

    def finish(self) -> None:
        """The text has ended within the object."""
        if self.state == self.rewritten_value:
            self.show(self.value.shown())

    def taken_pieces(self) -> list[CallPiece]:
        pieces, self.pieces = self.pieces, []
        return pieces

    def show(self, arguments: str) -> None:
        if not self.begun:
            self.begun, self.unshown = True, ""
            self.pieces.append(CallPiece(self.index, self.name))
        if arguments:
            self.pieces.append(CallPiece(self.index, None, arguments))

    # Each state reads what it can of the text from a position on; -1: it is no call.

    def opening(self, text: str, at: int) -> int:
        self.state = self.before_key
        return at + 1 if text[at] == "{" else -1

    def before_key(self, text: str, at: int) -> int:
        if text[at] == '"':
            self.key, self.state = "", self.in_key
            return at + 1
        return at + 1 if text[at].isspace() else -1

    def in_key(self, text: str, at: int) -> int:
        if text[at] != '"':
            self.key += text[at]
            return at + 1 if any(key.startswith(self.key) for key in KEYS) else -1
        same = ARGUMENTS if self.key in ARGUMENTS else (self.key,)
        if self.key not in KEYS or not self.keys.isdisjoint(same):
            return -1
        self.keys.add(self.key)
        self.state = self.before_value
        return at + 1

    def before_value(self, text: str, at: int) -> int:
        """The colon, and blanks."""
        char = text[at]
        if char == ":" and not self.written:
            self.written = ":"
            return at + 1
        if char.isspace():
            return at + 1
        if not self.written or char not in VALUE_BEGINS:
            return -1
        self.value, self.written = JsonValue(), ""
        self.has_arguments |= self.key in ARGUMENTS
        if self.key not in ARGUMENTS or self.name is None:
            self.state = self.held_value
        else:
            self.show("")
            self.state = self.rewritten_value if char in '"n' else self.shown_value
        return at

    def held_value(self, text: str, at: int) -> int:
        count = self.value.take(text[at])
        self.written += text[at : at + count]
        too_long = self.key not in ARGUMENTS and len(self.written) > MAX_SCALAR
        if too_long or not self.value.is_plausible:
            return -1
        if self.value.done and not self.is_fitting():
            return -1
        if self.value.done:
            self.end_value()
        return at + count

    def shown_value(self, text: str, at: int) -> int:
        count = self.value.take(text[at:])
        self.show(self.value.shown())
        if self.value.done:
            self.end_value()
        return at + count

    def rewritten_value(self, text: str, at: int) -> int:
        """A string or null, which is shown once it is complete: what is shown differs from what the model wrote."""
        count = self.value.take(text[at:])
        self.written += text[at : at + count]
        if self.value.done:
            self.show(arguments_of(self.written))
            self.end_value()
        return at + count

    def end_value(self) -> None:
        self.written, self.state = "", self.after_value

    def after_value(self, text: str, at: int) -> int:
        char = text[at]
        if char == ",":
            self.state = self.before_key
        elif char == "}":
            if self.name is None:
                return -1
            if not self.begun:
                self.show("{}" if self.arguments is None else self.arguments)
            self.done = True
        elif not char.isspace():
            return -1
        return at + 1

    def is_fitting(self) -> bool:
        """Whether a call may have the value that was read; its name and arguments are kept."""
        if self.key in ARGUMENTS:
            self.arguments = arguments_of(self.written)
            return True
        try:
            value = json.loads(self.written)
        except (ValueError, RecursionError):
            return False
        if self.key == "name":
            self.name = value if isinstance(value, str) and value in self.names else None
            return self.name is not None
        return value == "function" if self.key == "type" else isinstance(value, str)
