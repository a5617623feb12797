"""One streamed completion as a client sees it: its text, painted as it arrives, and how fast it came.

Knows the HTTP API and nothing else of the server.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import aiohttp

    Show = Callable[[str, bool], None]

GREEN, DIM, RESET = "\x1b[32m", "\x1b[2m", "\x1b[0m"


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
            for text, accepted in painted(choice, len(self.text)):
                show(text, accepted)
            self.last = now
            if not self.token_ids:
                self.first, self.num_first = now, len(choice["token_ids"])
            self.text += choice["text"]
            self.token_ids += choice["token_ids"]
        self.usage = event.get("usage", self.usage)
        self.figures = event.get("metrics", {}).get("speculative_decoding", self.figures)


async def stream(session: aiohttp.ClientSession, url: str, body: dict[str, Any], show: Show) -> Streamed:
    """Send the request; call `show` with each piece of text and whether it is an accepted draft token."""
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


def painted(choice: dict[str, Any], shown: int) -> Iterator[tuple[str, bool]]:
    """The text of a chunk, cut where its tokens begin; `shown` characters came before it."""
    text: str = choice["text"]
    cuts = [max(offset - shown, 0) for offset in choice["text_offset"]]
    for begin, end, accepted in zip([0, *cuts[1:]], [*cuts[1:], len(text)], choice["accepted"], strict=True):
        if begin < end:
            yield text[begin:end], accepted


def wants_colour() -> bool:
    """As no-color.org and force-color.org say; otherwise only a terminal gets colours."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty()


def show(text: str, accepted: bool) -> None:
    print(f"{GREEN}{text}{RESET}" if accepted and wants_colour() else text, end="", flush=True)


def show_prompt(text: str) -> None:
    print(f"{DIM}{text}{RESET}" if wants_colour() else text, end="", flush=True)


def show_nothing(text: str, accepted: bool) -> None:
    pass
