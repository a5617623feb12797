"""Why a text is not JSON, and where: msgspec's errors with line, column and the characters there, and with what those
meant who wrote it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import msgspec

POSITION = re.compile(r"^JSON is malformed: (?P<reason>.*) \(byte (?P<at>\d+)\)$")
HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")
SHOWN_BEFORE, SHOWN_BEHIND = 24, 16
"""Bytes of the text around the place."""
ONE_BEHIND = ("trailing characters", "invalid escape character in string")
"""What msgspec reports one byte behind its place."""
OTHER_WORDS = {b"NaN", b"Infinity", b"-Infinity", b"nan", b"inf", b"-inf"}
CAPITAL_WORDS = {b"True": "true", b"False": "false", b"None": "null", b"TRUE": "true", b"FALSE": "false"}
WORD = re.compile(rb"-?[A-Za-z_]+")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_FORM_START = 64


def explain_json_error(data: bytes, error: msgspec.DecodeError) -> str:
    """`a value is missing at line 1, column 12, near {"prompt": }`. `data` is UTF-8."""
    match = POSITION.match(str(error))
    if match is None:
        if HALF_PAIR.search(data) and data.rstrip().endswith((b"}", b"]", b'"')):
            return r"a string has one half of a surrogate pair, such as \ud83d without \ude42"
        return f"it ends early, behind {excerpt(data, len(data))}" if data.strip() else "it is empty"
    at = int(match["at"]) - (match["reason"] in ONE_BEHIND)
    reason = hint(data, at) or words(match["reason"], data, at)
    line = data.count(b"\n", 0, at) + 1
    column = len(data[data.rfind(b"\n", 0, at) + 1 : at].decode(errors="replace")) + 1
    return f"{reason} at line {line}, column {column}, near {excerpt(data, at)}"


def words(reason: str, data: bytes, at: int) -> str:
    if reason == "object keys must be strings":
        return "a key that is not in double quotes"
    if reason == "invalid character":
        return f"unexpected {data[at : at + 4].decode(errors='replace')[:1]!r}"
    if reason == "trailing characters":
        return "more text behind the JSON value"
    return reason.replace("trailing comma in array", "a comma before ]").replace(
        "trailing comma in object", "a comma before }"
    )


def hint(data: bytes, at: int) -> str | None:
    """What was meant, if that is clear."""
    word = WORD.match(data, at)
    found = b"" if word is None else word[0]
    if data.startswith(BYTE_ORDER_MARK):
        return "a byte order mark, which JSON must not have,"
    if at == 0 and looks_like_form(data):
        return "a form or another text in place of JSON, such as {...},"
    if found in CAPITAL_WORDS:
        return f"{found.decode()} in place of {CAPITAL_WORDS[found]}"
    if found in OTHER_WORDS:
        return f"{found.decode()}, which is no number in JSON,"
    if data[at : at + 1] == b"'" or data[at : at + 2] == b"{'":
        return "a single quote, where JSON has double quotes,"
    if data[at : at + 1] in (b"#", b"/"):
        return "a comment, which JSON has not,"
    if data[at : at + 1] < b" " and at < len(data):
        return r"a line break, or another control character, within a string (JSON writes \n for it)"
    return None


def looks_like_form(data: bytes) -> bool:
    return data[:1] not in (b"{", b"[", b'"', b"'", b"#", b"/") and (b"=" in data[:MAX_FORM_START] or data[:1] in b"<-")


def excerpt(data: bytes, at: int) -> str:
    """The characters around a place, in one line."""
    begin = max(0, at - SHOWN_BEFORE)
    around = data[begin : at + SHOWN_BEHIND].decode(errors="ignore")
    before, behind = "…" if begin else "", "…" if at + SHOWN_BEHIND < len(data) else ""
    return f"{before}{' '.join(around.split())}{behind}"
