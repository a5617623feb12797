"""One streamed completion as a client sees it: its text as it arrives, who guessed it, and how fast it came.

Knows the HTTP API and nothing else of the server.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import aiohttp

    Show = Callable[[str, str | None], None]


class DemoError(Exception):
    """What went wrong, in a sentence."""


@dataclass(slots=True)
class Streamed:
    """The response so far. Times are seconds of time.perf_counter."""

    asked: float
    first: float = 0.0
    last: float = 0.0
    num_first: int = 0
    """Tokens of the first event: they came at once with the prompt."""
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    guessed_by: Counter[str] = field(default_factory=Counter)
    """Accepted draft tokens by drafter."""
    usage: dict[str, Any] | None = None
    figures: dict[str, Any] | None = None
    """Of speculation; None where nothing was verified."""

    @property
    def rate(self) -> float:
        """Tokens per second of decoding."""
        return (len(self.token_ids) - self.num_first) / max(self.last - self.first, 1e-9)

    def take(self, event: dict[str, Any], show: Show) -> None:
        now = time.perf_counter()
        for choice in event["choices"]:
            for text, drafter in pieces(choice, len(self.text)):
                show(text, drafter)
            self.last = now
            if not self.token_ids:
                self.first, self.num_first = now, len(choice["token_ids"])
            self.text += choice["text"]
            self.token_ids += choice["token_ids"]
            self.guessed_by.update(name for name in choice["drafted_by"] if name)
        self.usage = event.get("usage", self.usage)
        self.figures = event.get("metrics", {}).get("speculative_decoding", self.figures)


async def stream(session: aiohttp.ClientSession, url: str, body: dict[str, Any], show: Show) -> Streamed:
    """Send the request; call `show` with each token's text and its drafter, None for the model alone."""
    streamed = Streamed(time.perf_counter())
    async with session.post(f"{url}/v1/completions", json=body) as answer:
        if answer.status != 200:
            raise DemoError(f"the server answered {answer.status}: {await answer.text()}")
        async for line in answer.content:
            event = parse_event(line)
            if event is not None:
                streamed.take(event, show)
    if streamed.usage is None:
        raise DemoError("the stream ended without its usage chunk.")
    return streamed


def parse_event(line: bytes) -> dict[str, Any] | None:
    """The JSON of a `data:` line; None for blank lines and the end."""
    data = line.decode().strip().removeprefix("data:").strip()
    if data in ("", "[DONE]"):
        return None
    event: dict[str, Any] = json.loads(data)
    if "error" in event:
        raise DemoError(f"the stream ended with an error: {event['error']['message']}")
    return event


def pieces(choice: dict[str, Any], shown: int) -> Iterator[tuple[str, str | None]]:
    """The text of a chunk, cut where its tokens begin; `shown` characters came before it."""
    text: str = choice["text"]
    cuts = [max(offset - shown, 0) for offset in choice["text_offset"]]
    for begin, end, drafter in zip([0, *cuts[1:]], [*cuts[1:], len(text)], choice["drafted_by"], strict=True):
        if begin < end:
            yield text[begin:end], drafter


def show_nothing(text: str, drafter: str | None) -> None:
    pass
