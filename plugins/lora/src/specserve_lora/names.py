"""What an adapter may be called.

Names are parts of URLs, of `base:adapter` and of namespaces; nothing that separates those may be in one.
"""

from __future__ import annotations

MAX_NAME = 128
NAME_RULE = f"1 to {MAX_NAME} printable characters without blanks, ':' and '/'"


def is_name(text: str) -> bool:
    return 0 < len(text) <= MAX_NAME and text.isprintable() and not any(c in ":/" or c.isspace() for c in text)
