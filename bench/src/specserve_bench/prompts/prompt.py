"""A prompt, in one of three forms."""

from __future__ import annotations

import msgspec

Message = dict[str, object]


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked, and how much may be answered. Exactly one of `text`, `token_ids` and `messages` is set."""

    kind: str
    text: str | None = None
    token_ids: tuple[int, ...] | None = None
    messages: tuple[Message, ...] | None = None
    """Of a chat."""
    max_tokens: int | None = None
    """None: what the run asks for."""
