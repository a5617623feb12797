"""Finds tool calls in a text that comes piece by piece: text, names of tools, and arguments as they come.

Knows formats, and nothing of responses. What begins like a call and is none stays text.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from specserve.text.stop_strings import partial_match_length

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.server.tools.formats import ToolFormat

HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*"([^"\\]{1,200})"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=[{\["tfn0-9-])')
BETWEEN = re.compile(r"[\s,;\]]*")
MAX_HEAD = 4096
"""Characters within which a call must have begun to look like one."""


@dataclass(slots=True)
class CallPiece:
    """A piece of call number `index`; `name` comes with the first."""

    index: int
    name: str | None = None
    arguments: str = ""


@dataclass(slots=True)
class Parsed:
    """`pieces`: text and calls in their order."""

    pieces: list[str | CallPiece] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(piece for piece in self.pieces if isinstance(piece, str))

    @property
    def calls(self) -> list[CallPiece]:
        return [piece for piece in self.pieces if isinstance(piece, CallPiece)]

    def add_text(self, text: str) -> None:
        if text:
            self.pieces.append(text)


class JsonValue:
    """Finds the end of a JSON value that comes piece by piece."""

    __slots__ = ("depth", "done", "escaped", "in_string", "started")

    def __init__(self) -> None:
        self.depth = 0
        self.in_string = self.escaped = self.started = self.done = False

    def take(self, text: str) -> int:
        """How many characters of the text belong to the value."""
        for i, char in enumerate(text):
            if self.in_string:
                self.string_character(char)
            elif not self.depth and self.started and (char in ",]}" or char.isspace()):
                self.done = True  # a number or a word ends where something else begins
                return i
            elif char == '"':
                self.in_string = True
            elif char in "{[":
                self.depth += 1
            elif char in "}]":
                self.depth -= 1
                self.done = not self.depth
            self.started = True
            if self.done:
                return i + 1
        return len(text)

    def string_character(self, char: str) -> None:
        if self.escaped:
            self.escaped = False
        elif char == "\\":
            self.escaped = True
        elif char == '"':
            self.in_string = False
            self.done = not self.depth


class ToolCallStream:
    """`push` takes the next piece of the text, with `final` the last one."""

    def __init__(self, form: ToolFormat) -> None:
        self.form = form
        self.held = ""
        self.raw = ""
        """What a call would be as text, until it looks like one."""
        self.num_calls = 0
        self.value = JsonValue()
        self.state: Callable[[Parsed, bool], bool] = self.text if form.trigger else self.beginning

    def push(self, text: str, *, final: bool = False) -> Parsed:
        self.held += text
        parsed = Parsed()
        while self.state(parsed, final):
            pass
        if final and self.state in (self.beginning, self.head):
            parsed.add_text(self.raw + self.held)
            self.held = self.raw = ""
        return self.limited(parsed)

    def limited(self, parsed: Parsed) -> Parsed:
        """To what the form lets through."""
        most, is_all = self.form.most_calls, self.form.is_all
        if most is None and not is_all:
            return parsed
        return Parsed(
            [
                piece
                for piece in parsed.pieces
                if (not is_all if isinstance(piece, str) else most is None or piece.index < most)
            ]
        )

    # Each state reads what it can of `held` and tells whether another state is to go on.

    def beginning(self, parsed: Parsed, final: bool) -> bool:
        """Without a trigger: a text that begins with an object is a call."""
        begun = self.held.lstrip().removeprefix("<|python_tag|>")
        if not begun or "<|python_tag|>".startswith(begun):
            return False
        self.state = self.head if begun.startswith("{") else self.rest
        self.raw, self.held = self.held[: len(self.held) - len(begun)], begun
        return True

    def rest(self, parsed: Parsed, final: bool) -> bool:
        parsed.add_text(self.raw + self.held)
        self.raw = self.held = ""
        return False

    def text(self, parsed: Parsed, final: bool) -> bool:
        before, trigger, after = self.held.partition(self.form.trigger)
        if trigger:
            parsed.add_text(before)
            self.raw, self.held, self.state = trigger, after, self.head
            return True
        keep = 0 if final else partial_match_length((self.form.trigger,), self.held)
        shown = len(self.held) - keep
        parsed.add_text(self.held[:shown])
        self.held = self.held[shown:]
        return False

    def head(self, parsed: Parsed, final: bool) -> bool:
        inner = self.held.lstrip(" \n\t[") if self.form.is_list else self.held.lstrip()
        match = HEAD.match(inner)
        if match is not None:
            parsed.pieces.append(CallPiece(self.num_calls, match[1]))
            self.held, self.raw, self.value = inner[match.end() :], "", JsonValue()
            self.state = self.rewritten_arguments if self.held[0] in '"n' else self.arguments
            return True
        whole = whole_call(inner)
        if whole is not None:
            name, arguments, rest = whole
            parsed.pieces.append(CallPiece(self.num_calls, name, arguments))
            self.num_calls += 1
            self.held, self.raw, self.state = rest, "", self.after
            return True
        ended = self.form.end and self.form.end.strip() in self.held
        if ended or len(self.held) > MAX_HEAD or (inner and not inner.startswith("{")):
            parsed.add_text(self.raw)
            self.raw, self.state = "", self.text if self.form.trigger else self.rest
            return True
        return False

    def arguments(self, parsed: Parsed, final: bool) -> bool:
        count = self.value.take(self.held)
        if count:
            parsed.pieces.append(CallPiece(self.num_calls, None, self.held[:count]))
        self.held = self.held[count:]
        if self.value.done:
            self.num_calls += 1
            self.state = self.closing
        return self.value.done

    def rewritten_arguments(self, parsed: Parsed, final: bool) -> bool:
        """A string or null, which is sent once it is complete: what is sent differs from what the model wrote."""
        count = self.value.take(self.held)
        self.raw, self.held = self.raw + self.held[:count], self.held[count:]
        if self.value.done:
            parsed.pieces.append(CallPiece(self.num_calls, None, arguments_text(decoded(self.raw))))
            self.num_calls += 1
            self.raw, self.state = "", self.closing
        elif final:
            parsed.pieces.append(CallPiece(self.num_calls, None, self.raw))
        return self.value.done

    def closing(self, parsed: Parsed, final: bool) -> bool:
        """The brace behind the arguments, and what else the model writes into the object."""
        _, brace, rest = self.held.partition("}")
        if brace:
            self.held, self.state = rest, self.after
        return bool(brace)

    def between(self, parsed: Parsed, final: bool) -> bool:
        """Blanks behind a call are no text."""
        self.held = self.held.lstrip()
        if self.held:
            self.state = self.text
        return bool(self.held)

    def after(self, parsed: Parsed, final: bool) -> bool:
        """What stands between two calls is no text."""
        inner = BETWEEN.sub("", self.held, count=1)
        end = self.form.end.strip()
        if end and inner.startswith(end):
            self.held, self.state = inner[len(end) :], self.between
            return True
        if not inner or (end and end.startswith(inner)):
            return False
        self.held = inner
        self.state = self.head if inner.startswith("{") else (self.text if self.form.trigger else self.rest)
        return True


def whole_call(text: str) -> tuple[str, str, str] | None:
    """A complete object with its keys in another order: name, arguments as JSON text, and what follows."""
    try:
        found, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        return None
    arguments = arguments_text(found.get("arguments", found.get("parameters")))
    return found["name"], arguments, text[end:]


def arguments_text(value: object) -> str:
    """Arguments as a response has them: JSON text. Models write null for a tool without parameters, and some write the
    text of an object, as the API has it, where the form wants the object itself."""
    if value is None:
        return "{}"
    if isinstance(value, str) and isinstance(decoded(value), dict):
        return value
    return json.dumps(value, ensure_ascii=False)


def decoded(text: str) -> object:
    """The value of a JSON text; the text itself where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
