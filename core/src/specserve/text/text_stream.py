"""Incremental decoding: the text of one sequence, token by token. Its state is bounded, whatever the tokens are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenizers.decoders import DecodeStream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenizers import Tokenizer as RustTokenizer

REPLACEMENT = "\ufffd"
MAX_CHARACTER_TAIL = 3
"""A UTF-8 character has four bytes at most, so at most three tokens wait for its last byte."""
MAX_PENDING = 16
"""After so many tokens without text the bytes are no character and are shown as U+FFFD."""
CONTEXT = 8
"""Prompt tokens that a stream needs to continue after them; decoders look at most at their neighbour."""


class HfTextStream:
    """`specserve.protocols.TextStream`. Emits only whole characters; text never changes once emitted.

    What an incomplete character at the very end would be is never emitted.
    """

    __slots__ = ("_pending", "_rust", "_skipped", "_stream")

    def __init__(self, rust: RustTokenizer, prompt_ids: Sequence[int], skipped: frozenset[int]) -> None:
        self._rust = rust
        self._skipped = skipped
        context = [id for id in prompt_ids[-CONTEXT:] if id not in skipped]
        # The library repeats the text of a context that ends within a character: such a tail is pushed instead.
        whole = len(context)
        while whole and rust.decode(context[:whole], skip_special_tokens=False).endswith(REPLACEMENT):
            whole -= 1
        tail = context[whole:][-MAX_CHARACTER_TAIL:]
        self._pending: list[int] = []
        self._stream = DecodeStream(ids=context[:whole], skip_special_tokens=False)
        for token_id in tail:
            self.push(token_id)

    def push(self, token_id: int) -> str:
        if token_id in self._skipped:
            return ""
        self._pending.append(token_id)
        try:
            text = self._stream.step(self._rust, token_id)
        except Exception:  # the library's "invalid prefix", of decoders that rewrite their earlier output
            return self._restart(self._pending, [])
        if text:
            self._pending.clear()
            return str(text)
        if len(self._pending) < MAX_PENDING:
            return ""
        return self._restart(self._pending[:-MAX_CHARACTER_TAIL], self._pending[-MAX_CHARACTER_TAIL:])

    def _restart(self, emitted: list[int], kept: list[int]) -> str:
        """Stop waiting: emit the text of `emitted` as it is and continue with `kept`."""
        self._pending = []
        self._stream = DecodeStream(skip_special_tokens=False)
        text: str = self._rust.decode(emitted, skip_special_tokens=False)
        return text + "".join(self.push(token_id) for token_id in kept)
