"""A Python literal, or a JSON value, in the arguments of a call: read as it comes and written as JSON."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING

from specserve_server.tools.read_calls import MAX_DEPTH, json_inside
from specserve_server.tools.source import NoCallError

if TYPE_CHECKING:
    from specserve_server.tools.read_calls import ReadCalls
    from specserve_server.tools.source import Reading

BLANKS = re.compile(r"[ \t\r\n]*")
MAX_BLANKS = 256
MAX_SCALAR = 512
"""Characters of a number or a word."""
SCALAR = re.compile(r"[\w.+-]*")
JSON_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
QUOTES = ('"""', "'''", '"', "'")
PLAIN = {quote: re.compile(rf"[^\\{quote[0]}]*") for quote in QUOTES}
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0", "\n": ""}
ESCAPES |= {char: char for char in "\\'\"/"}
HEX = {"x": 2, "u": 4, "U": 8}
"""Digits behind an escape."""
HEX_DIGITS = re.compile("[0-9a-fA-F]+")
MAX_CODE = 0x10FFFF
OPENING = {"[": "]", "(": ")", "{": "}"}


def skip_blanks(calls: ReadCalls) -> Reading[None]:
    yield from calls.source.run(BLANKS, MAX_BLANKS)


def read_value(calls: ReadCalls, before: str = "", depth: int = 0) -> Reading[None]:
    """`before`: what is shown in front of the value. Raises NoCallError for what is no literal."""
    source = calls.source
    char = yield from source.peek()
    if char in OPENING and char:
        if depth == MAX_DEPTH:
            raise NoCallError
        source.at += 1
        calls.show(before + ("{" if char == "{" else "["))
        yield from read_members(calls, char, depth + 1)
    elif char and char in "'\"":
        calls.show(before + '"')
        yield from read_string(calls)
    else:
        word = yield from source.run(SCALAR, MAX_SCALAR)
        calls.show(before + scalar(word))


def read_members(calls: ReadCalls, opening: str, depth: int) -> Reading[None]:
    """Of a list, a tuple or a dict, and what closes it; a comma may stand behind the last one."""
    source, closing, separator = calls.source, OPENING[opening], ""
    while True:
        yield from skip_blanks(calls)
        if (yield from source.accept(closing)):
            break
        if opening == "{":
            key = yield from read_key(calls)
            yield from skip_blanks(calls)
            yield from source.expect(":")
            yield from skip_blanks(calls)
            yield from read_value(calls, f"{separator}{key}: ", depth)
        else:
            yield from read_value(calls, separator, depth)
        yield from skip_blanks(calls)
        separator = ", "
        if not (yield from source.accept(",")):
            yield from source.expect(closing)
            break
    calls.show("}" if opening == "{" else "]")


def read_key(calls: ReadCalls) -> Reading[str]:
    """A key as JSON: a string, or a number, which becomes one. It is short, and shown with its value."""
    source, start = calls.source, calls.source.at
    quote = yield from source.accept('"', "'")
    if not quote:
        number = scalar((yield from source.run(SCALAR, MAX_SCALAR)))
        return f'"{number}"'
    pieces: list[str] = []
    while True:
        pieces.append(json_inside((yield from source.run(PLAIN[quote], MAX_SCALAR))))
        if (yield from source.accept(quote)):
            return f'"{"".join(pieces)}"'
        yield from source.expect("\\")
        pieces.append((yield from escaped(calls)))
        if source.at - start > MAX_SCALAR:
            raise NoCallError


def read_string(calls: ReadCalls) -> Reading[None]:
    """From its quotes on; the first one is shown."""
    source = calls.source
    quote = yield from source.expect(*QUOTES)
    while True:
        yield from source.flow(PLAIN[quote], calls.show_text)
        if (yield from source.accept(quote)):
            break
        if (yield from source.accept("\\")):
            calls.show((yield from escaped(calls)))
        elif quote in QUOTES[:2] and (yield from source.accept(quote[0])):
            calls.show_text(quote[0])
        else:
            raise NoCallError  # the text has ended
    calls.show('"')


def escaped(calls: ReadCalls) -> Reading[str]:
    """What an escape stands for, inside of a JSON string: from behind its backslash on."""
    source = calls.source
    char = yield from source.peek()
    count = HEX.get(char, 0)
    if count:
        digits = (yield from source.peek(1 + count))[1:]
        code = int(digits, 16) if HEX_DIGITS.fullmatch(digits) and len(digits) == count else MAX_CODE + 1
        if code > MAX_CODE:
            return "\\\\"
        source.at += 1 + count
        # Half of a surrogate pair stays an escape: its other half follows.
        return f"\\u{code:04x}" if code < 0x10000 else json_inside(chr(code))
    if char not in ESCAPES or not char:
        return "\\\\"  # Python keeps the backslash of an escape that it does not know
    source.at += 1
    return json_inside(ESCAPES[char])


def scalar(word: str) -> str:
    """As JSON. Raises NoCallError for what is neither a number nor a word of a literal."""
    if word in WORDS:
        return WORDS[word]
    if JSON_NUMBER.fullmatch(word):
        return word
    if not word.isascii():
        raise NoCallError
    for read in (int, partial(int, base=0), float):
        try:
            return json.dumps(read(word), allow_nan=False)
        except ValueError:  # another way to write a number
            continue
    raise NoCallError
