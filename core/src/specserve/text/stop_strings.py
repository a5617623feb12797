"""Stop strings, found in text that grows token by token.

One rule decides where a stop string ends a text: for the verifier, which looks for the token that completes it, and for
the detokenizer, which cuts the text. Buffers fewer characters than the longest stop string has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from specserve.protocols import TextStream


class StopMatch(NamedTuple):
    """`stop` begins at `start` of (tail + new text) and is completed by the new text."""

    start: int
    stop: str


class StopStringMatcher:
    """Matches the text of one sequence."""

    __slots__ = ("_max_tail", "_stops", "_stream", "_tail")

    def __init__(self, stops: tuple[str, ...], stream: TextStream) -> None:
        assert all(stops), "requests with an empty stop string are refused"
        self._stops = stops
        self._stream = stream
        self._tail = ""
        self._max_tail = max(map(len, stops), default=1) - 1

    def push(self, token_id: int) -> str | None:
        """The stop string that this token completes, if any."""
        new_text = self._stream.push(token_id)
        if not new_text:
            return None
        match = find_stop_string(self._stops, self._tail, new_text)
        self._tail = (self._tail + new_text)[-self._max_tail :] if self._max_tail else ""
        return None if match is None else match.stop


def find_stop_string(stops: tuple[str, ...], tail: str, new_text: str) -> StopMatch | None:
    """The stop string completed within `new_text`: the one that begins first; of those that tie, the longest."""
    text = tail + new_text
    best: StopMatch | None = None
    for stop in stops:
        start = text.find(stop, max(0, len(tail) - len(stop) + 1))
        if start < 0:
            continue
        if best is None or (start, -len(stop)) < (best.start, -len(best.stop)):
            best = StopMatch(start, stop)
    return best


def partial_match_length(stops: tuple[str, ...], text: str) -> int:
    """How many characters at the end of `text` may be the beginning of a stop string."""
    longest = min(len(text), max(map(len, stops), default=1) - 1)
    for length in range(longest, 0, -1):
        end = text[-length:]
        if any(stop.startswith(end) for stop in stops if len(stop) > length):
            return length
    return 0
