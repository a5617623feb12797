"""A JSON value that comes piece by piece: where it ends, and how it is shown."""

from __future__ import annotations

import json

OUTSIDE_STRINGS = frozenset(' \t\r\n{}[]:,"+-.0123456789Eeutrfalsn')


class JsonValue:
    """`shown`: what was taken, with control characters in strings escaped: models write line breaks there as they are,
    and no JSON parser takes those."""

    __slots__ = ("depth", "done", "escaped", "in_string", "is_plausible", "pieces", "started")

    def __init__(self) -> None:
        self.depth = 0
        self.in_string = self.escaped = self.started = self.done = False
        self.is_plausible = True
        """No character was outside of a string that stands in no JSON text."""
        self.pieces: list[str] = []

    def take(self, text: str) -> int:
        """How many characters of the text belong to the value."""
        for i, char in enumerate(text):
            if self.in_string:
                self.string_character(char)
            elif not self.depth and self.started and (char in ",]}" or char.isspace()):
                self.done = True  # a number or a word ends where something else begins
                return i
            else:
                self.outside_character(char)
            self.started = True
            if self.done:
                return i + 1
        return len(text)

    def outside_character(self, char: str) -> None:
        if char == '"':
            self.in_string = True
        elif char in "{[":
            self.depth += 1
        elif char in "}]":
            self.depth -= 1
            self.done = self.depth <= 0
        elif char not in OUTSIDE_STRINGS:
            self.is_plausible = False
        self.pieces.append(char)

    def string_character(self, char: str) -> None:
        if char < " ":  # behind a backslash, that is one of its own
            self.pieces.append("\\" * self.escaped + json.dumps(char)[1:-1])
        else:
            self.pieces.append(char)
        if self.escaped:
            self.escaped = False
        elif char == "\\":
            self.escaped = True
        elif char == '"':
            self.in_string = False
            self.done = not self.depth

    def shown(self) -> str:
        """Each character once."""
        shown = "".join(self.pieces)
        self.pieces.clear()
        return shown


def arguments_of(written: str) -> str:
    """The arguments of a response: JSON text. `written`: the JSON value that stands for them. Models write null for a
    tool without parameters, and some write the text of an object, as the API has it, where the form wants the object
    itself. What is no JSON stays as it was written."""
    if not written.startswith(('"', "n")):
        return with_escapes(written)
    try:
        value = json.loads(written, strict=False)
    except (ValueError, RecursionError):
        return with_escapes(written)
    if value is None:
        return "{}"
    text = str(value)
    return with_escapes(text.strip()) if text.lstrip().startswith("{") else with_escapes(written)


def with_escapes(text: str) -> str:
    value = JsonValue()
    count = value.take(text)
    return value.shown() + text[count:]
