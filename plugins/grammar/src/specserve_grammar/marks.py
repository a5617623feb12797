"""Texts that mark where a part of a text begins or ends, and free text up to them, in the grammar's language."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from llguidance import LLTokenizer


def mark_of(text: str, tokenizer: LLTokenizer) -> str:
    """A special token by its number, since text never spells one; else a literal."""
    ids = tokenizer.tokenize_str(text, parse_special=True)
    if len(ids) == 1 and tokenizer.is_special_token(ids[0]):
        return f"<[{ids[0]}]>"
    return json.dumps(text, ensure_ascii=False)


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
