"""Where a JSON text nests too deeply: a reader of JSON can only say that it does."""

from __future__ import annotations

import re

TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
MAX_NAME = 64


def field_of_depth(data: bytes, limit: int) -> str | None:
    """The field of the object `data` in which more than `limit` lists and objects are within each other; None where
    there is none."""
    depth, name = 0, b""
    for match in TOKEN.finditer(data):
        token = match[0]
        if token in (b"[", b"{"):
            depth += 1
            if depth > limit:
                return name[1:-1][:MAX_NAME].decode(errors="replace")
        elif token in (b"]", b"}"):
            depth -= 1
        elif depth == 1:  # a key, or the text of a field, which is no list
            name = token
    return None
