"""What an adapter may be called.

Names are parts of URLs, of `base:adapter` and of ids of versions, whose separators they must not contain.
"""

from __future__ import annotations

MAX_NAME_LEN = 128
NAME_RULE = f"1 to {MAX_NAME_LEN} printable characters without blanks, ':' and '/'"


def is_name(text: str) -> bool:
    return 0 < len(text) <= MAX_NAME_LEN and text.isprintable() and not any(c in ":/" or c.isspace() for c in text)
