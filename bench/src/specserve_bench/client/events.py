"""Server-sent events, cut at any byte. Source: https://html.spec.whatwg.org/multipage/server-sent-events.html."""

from __future__ import annotations

MAX_EVENT_BYTES = 1 << 24


class TooLongError(ValueError):
    """An event has more than MAX_EVENT_BYTES bytes: this is no stream of tokens."""


class EventParser:
    """Gives the data of each event once it is complete. Comments and other fields are left out."""

    def __init__(self) -> None:
        self._line = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        events = []
        *lines, self._line = (self._line + chunk).split(b"\n")
        if len(self._line) > MAX_EVENT_BYTES:
            raise TooLongError(f"an event has more than {MAX_EVENT_BYTES} bytes")
        for line in lines:
            text = line.removesuffix(b"\r")
            if text.startswith(b"data:"):
                self._data.append(text[5:].removeprefix(b" "))
            elif not text and self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        return events
