"""Incremental decoding: the text of one sequence, token by token. Its state is bounded, whatever the tokens are."""

from __future__ import annotations

from codecs import getincrementaldecoder
from typing import TYPE_CHECKING

from specserve.text.token_pieces import REPLACEMENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.text.token_pieces import TokenPieces

CONTEXT = 8
"""Tokens at the end of a prompt that are read: a UTF-8 character has four bytes, a decoder looks at one neighbour."""
UTF8 = getincrementaldecoder("utf-8")


class HfTextStream:
    """`specserve.protocols.TextStream`. Emits only whole characters; text never changes once emitted.

    Bytes that are no character become U+FFFD. What an incomplete character at the very end would be is never emitted.
    """

    __slots__ = ("_before", "_decoder", "_pieces", "_prompts_bytes", "_skipped")

    def __init__(self, pieces: TokenPieces, prompt_ids: Sequence[int], skipped: frozenset[int]) -> None:
        """Continues after the prompt's text, which includes the bytes of an incomplete character at its end: the first
        character that is emitted may begin with them."""
        self._pieces = pieces
        self._skipped = skipped
        self._before: int | None = None
        self._decoder = UTF8(errors="replace")
        self._prompts_bytes = b""
        for token_id in last_shown(prompt_ids, skipped):
            self.push(token_id)

    @classmethod
    def after(cls, pieces: TokenPieces, prompt_ids: Sequence[int], skipped: frozenset[int]) -> HfTextStream:
        """For an answer alone: a character that the prompt began is emitted if the answer completes it. If it does not,
        there is no U+FFFD for it."""
        stream = cls(pieces, prompt_ids, skipped)
        stream._prompts_bytes = stream._decoder.getstate()[0]
        return stream

    def push(self, token_id: int) -> str:
        if token_id in self._skipped:
            return ""
        piece = self._pieces.piece(token_id, self._before)
        if piece or self._pieces.is_token(token_id):
            self._before = token_id
        text = self._decoder.decode(piece)
        return self._without_the_prompts(text, piece) if self._prompts_bytes else text

    def _without_the_prompts(self, text: str, piece: bytes) -> str:
        """The text that ends the prompt's character. What is no character begins with one U+FFFD for all its bytes."""
        begun = self._prompts_bytes + piece
        self._prompts_bytes = b"" if text else begun
        is_broken = text.startswith(REPLACEMENT) and not begun.startswith(REPLACEMENT.encode())
        return text[1:] if is_broken else text


def last_shown(ids: Sequence[int], skipped: frozenset[int]) -> list[int]:
    """The last tokens that are part of the text."""
    found: list[int] = []
    for token_id in reversed(ids):
        if token_id not in skipped:
            found.append(token_id)
            if len(found) == CONTEXT:
                break
    return found[::-1]
