"""Tokens of one request -> the text that its reader may see.

Owns holding back what may become a stop string, cutting at it, and the place of every token in the text. The
engine decides when a request ends; this module only makes its text, and the same text however the tokens are
grouped into deltas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.text.stop_strings import find_stop, held_length

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.protocols import TextStream


class TextAssembler:
    """`include` keeps the stop string, or the text of the stop token, in the output."""

    __slots__ = ("_decoded", "_held", "_include", "_stops", "_stream")

    def __init__(self, stream: TextStream, stops: tuple[str, ...] = (), *, include: bool = False) -> None:
        self._stream = stream
        self._stops = stops
        self._include = include
        self._held = ""
        self._decoded = 0

    def push(
        self, tokens: Sequence[int], *, finish_reason: str | None = None, stop_string: str | None = None
    ) -> tuple[str, list[int]]:
        """The text that may be shown now, and for each token where its text begins (in characters).

        `finish_reason` and `stop_string` end the request with the last of these tokens.
        """
        ready: list[str] = []
        offsets: list[int] = []
        for i, token_id in enumerate(tokens):
            offsets.append(self._decoded)
            piece = self._stream.push(token_id)
            self._decoded += len(piece)
            if i + 1 == len(tokens) and finish_reason == "stop":
                ready.append(self._last_piece(piece, stop_string))
            else:
                ready.append(self._release(piece))
        if finish_reason is not None:
            ready.append(self._held)
            self._held = ""
        return "".join(ready), offsets

    def _release(self, piece: str) -> str:
        text = self._held + piece
        shown = len(text) - held_length(self._stops, text)
        self._held = text[shown:]
        return text[:shown]

    def _last_piece(self, piece: str, stop_string: str | None) -> str:
        """The text of the token that ended the request; `_held` is spent."""
        held, self._held = self._held, ""
        if stop_string is None:
            return held + piece if self._include else held
        match = find_stop(self._stops, held, piece)
        if match is None:
            return held + piece
        return (held + piece)[: match.start + (len(match.stop) if self._include else 0)]
