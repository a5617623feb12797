"""Texts that mark where a part of a text begins or ends, in the grammar's language."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llguidance import LLTokenizer


def mark_of(text: str, tokenizer: LLTokenizer) -> str:
    """A special token by its number, since text never spells one; else a literal."""
    ids = tokenizer.tokenize_str(text, parse_special=True)
    if len(ids) == 1 and tokenizer.is_special_token(ids[0]):
        return f"<[{ids[0]}]>"
    return json.dumps(text, ensure_ascii=False)
