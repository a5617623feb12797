"""From the tokens of one request to its output text.

Owns holding back what may become a stop string, cutting the text at it, and the position of every token in the text.
The engine decides when a request ends; the text is the same however its tokens are grouped into outputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.text.stop_strings import find_stop_string, partial_match_length

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.protocols import TextStream


class IncrementalDetokenizer:
    """`include` keeps the stop string, or the text of the stop token, in the output."""

    __slots__ = ("_held_text", "_include", "_num_chars", "_stops", "_stream")

    def __init__(self, stream: TextStream, stops: tuple[str, ...] = (), *, include: bool = False) -> None:
        self._stream = stream
        self._stops = stops
        self._include = include
        self._held_text = ""
        self._num_chars = 0

    def push(
        self, tokens: Sequence[int], *, finish_reason: str | None = None, stop_string: str | None = None
    ) -> tuple[str, list[int]]:
        """The text that may be shown now, and for each token where its text begins (in characters).

        `finish_reason` and `stop_string` end the request with the last of these tokens.
        """
        ready: list[str] = []
        offsets: list[int] = []
        for i, token_id in enumerate(tokens):
            offsets.append(self._num_chars)
            new_text = self._stream.push(token_id)
            self._num_chars += len(new_text)
            if i + 1 == len(tokens) and finish_reason == "stop":
                ready.append(self._text_at_stop(new_text, stop_string))
            else:
                ready.append(self._release(new_text))
        if finish_reason is not None:
            ready.append(self._held_text)
            self._held_text = ""
        return "".join(ready), offsets

    def _release(self, new_text: str) -> str:
        text = self._held_text + new_text
        num_ready = len(text) - partial_match_length(self._stops, text)
        self._held_text = text[num_ready:]
        return text[:num_ready]

    def _text_at_stop(self, new_text: str, stop_string: str | None) -> str:
        """The held text and that of the token which ended the request, without the stop string or stop token."""
        held, self._held_text = self._held_text, ""
        if stop_string is None:
            return held + new_text if self._include else held
        match = find_stop_string(self._stops, held, new_text)
        if match is None:
            return held + new_text
        return (held + new_text)[: match.start + (len(match.stop) if self._include else 0)]
