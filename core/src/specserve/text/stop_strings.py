"""Stop strings, found on the text as it comes.

Owns where a stop string ends a text, in one rule that the verifier (which token completes it) and the front
(where the text is cut) share. Holds at most the longest stop string's characters. Knows nothing of requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from specserve.protocols import TextStream


class StopMatch(NamedTuple):
    """`stop` begins at `start` of (tail + piece) and is completed by the piece."""

    start: int
    stop: str


class StopStrings:
    """Watches one sequence, token by token."""

    __slots__ = ("_keep", "_stops", "_stream", "_tail")

    def __init__(self, stops: tuple[str, ...], stream: TextStream) -> None:
        assert all(stops), "an empty stop string is refused at the border"
        self._stops = stops
        self._stream = stream
        self._tail = ""
        self._keep = max(map(len, stops), default=1) - 1

    def push(self, token_id: int) -> str | None:
        """The stop string that this token completes, if any."""
        piece = self._stream.push(token_id)
        if not piece:
            return None
        match = find_stop(self._stops, self._tail, piece)
        self._tail = last(self._tail + piece, self._keep)
        return None if match is None else match.stop


def find_stop(stops: tuple[str, ...], tail: str, piece: str) -> StopMatch | None:
    """The stop string completed within `piece`: the one that begins first; of those that tie, the longest."""
    text = tail + piece
    best: StopMatch | None = None
    for stop in stops:
        start = text.find(stop, max(0, len(tail) - len(stop) + 1))
        if start < 0:
            continue
        if best is None or (start, -len(stop)) < (best.start, -len(best.stop)):
            best = StopMatch(start, stop)
    return best


def held_length(stops: tuple[str, ...], text: str) -> int:
    """How many characters at the end of `text` may be the beginning of a stop string."""
    longest = min(len(text), max(map(len, stops), default=1) - 1)
    for length in range(longest, 0, -1):
        end = text[-length:]
        if any(stop.startswith(end) for stop in stops if len(stop) > length):
            return length
    return 0


def last(text: str, length: int) -> str:
    return text[-length:] if length else ""
