"""Texts that mark where a part of a text begins or ends, and free text up to them, in the grammar's language."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from llguidance import LLTokenizer


MARKS = re.compile(r"(<[^<>\s]+>|\[[A-Z_/]+\])")
"""What looks like a special token."""


def mark_of(text: str, tokenizer: LLTokenizer) -> str:
    """A special token by its number, since text never spells one; else a literal. A text that has special tokens and
    other parts is a sequence of these."""
    numbers = [special_token(part, tokenizer) for part in (text, *MARKS.split(text))]
    if numbers[0] is not None:
        return f"<[{numbers[0]}]>"
    if not any(number is not None for number in numbers[1:]):
        return json.dumps(text, ensure_ascii=False)
    return " ".join(mark_of(part, tokenizer) for part in MARKS.split(text) if part)


def special_token(text: str, tokenizer: LLTokenizer) -> int | None:
    ids = tokenizer.tokenize_str(text, parse_special=True)
    return ids[0] if len(ids) == 1 and tokenizer.is_special_token(ids[0]) else None


def text_up_to(name: str, mark: str) -> str:
    """The rule `name`: free text up to where the mark first comes, and the mark. It needs `free_text` of all marks."""
    if mark.startswith("<") or one_byte(mark):
        return f"{name}: TEXT {mark}"
    return f"{name}[lazy]: TEXT {mark}"


def free_text(marks: Iterable[str]) -> str:
    """The terminal TEXT: any text without the marks of one byte.

    A lazy lexeme of one byte would be missed where that byte also ends the lexeme before it: llguidance 1.9 then allows
    tokens that go on behind the mark, and panics where one is taken.
    """
    without = "".join(sorted({f"\\x{ord(byte):02X}" for byte in map(one_byte, marks) if byte}))
    return f"TEXT: /[^{without}]*/" if without else "TEXT: /(.|\\n)*/"


def one_byte(mark: str) -> str:
    """The text of a mark that is one byte; else nothing."""
    text = "" if mark.startswith("<") else json.loads(mark)
    return text if len(text.encode()) == 1 else ""
