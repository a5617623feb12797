"""One streamed request, timed as `vllm bench serve` times it.

The first token's time is that of the first event with tokens; gaps lie between events with tokens; the whole takes
until the last of them, not until the connection ends.
"""

from __future__ import annotations

import time
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import aiohttp
import msgspec

from specserve_bench.client.answers import Usage, draft_counts, event_decoder
from specserve_bench.client.events import EventParser, TooLongError
from specserve_bench.client.records import Failure, RequestRecord
from specserve_bench.client.steps import stops_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from specserve_bench.client.answers import Event
    from specserve_bench.client.records import DraftCounts

DONE = b"[DONE]"
MAX_MESSAGE = 300
"""Characters of an error's text that are kept."""


class Stopwatch:
    """When events of one stream came, and what they said."""

    def __init__(self) -> None:
        self.sent = time.perf_counter()
        self.times: list[float] = []
        self.usage: Usage | None = None
        self.drafters: dict[str, DraftCounts] | None = None
        self.stops: Counter[str] = Counter()
        self.finished = False
        """Whether there was a finish_reason."""
        self.done = False
        """Whether the stream said that it is over."""

    def take(self, event: Event) -> None:
        if event.has_tokens:
            self.times.append(time.perf_counter())
            self.stops.update(stops_in(event.told_steps))
            self.finished |= any(choice.finish_reason for choice in event.choices)
        self.usage = event.usage or self.usage
        counts = draft_counts(event.metrics)
        self.drafters = self.drafters if counts is None else counts

    def record(self, number: int, kind: str, began: float, failure: Failure | None) -> RequestRecord:
        """`began`: when the run did."""
        times, usage = self.times, self.usage
        last = times[-1] if times and failure is None else time.perf_counter()
        return RequestRecord(
            number=number,
            kind=kind,
            sent=self.sent - began,
            first=times[0] - self.sent if times else None,
            last=last - self.sent,
            gaps=tuple(b - a for a, b in pairwise(times)),
            num_prompt_tokens=usage.prompt_tokens if usage else 0,
            num_tokens=usage.completion_tokens if usage else len(times),
            counted="usage" if usage else "events",
            drafters=self.drafters,
            stops=dict(self.stops),
            failure=failure,
        )


class Sender:
    """Sends the requests of one run, whose clock begins when it is made."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        """`url`: with its route."""
        self._session, self._url = session, url
        self.began = time.perf_counter()

    async def send(self, number: int, kind: str, body: bytes) -> RequestRecord:
        """Never raises for what a server or a network does."""
        watch = Stopwatch()
        return watch.record(number, kind, self.began, await self._read(watch, body))

    async def _read(self, watch: Stopwatch, body: bytes) -> Failure | None:
        try:
            async with self._session.post(self._url, data=body) as answer:
                if answer.status != 200:
                    return Failure(f"status {answer.status}", one_line(await answer.text(errors="replace")))
                return await read_events(answer.content, watch)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            return None if watch.done and watch.times else failure_of(error, watch)


def failure_of(error: Exception, watch: Stopwatch) -> Failure:
    """Of a connection."""
    if isinstance(error, TimeoutError):
        return Failure("timeout", f"no end after {time.perf_counter() - watch.sent:.1f} s")
    kind = "connection lost" if watch.times else "connection"
    return Failure(kind, one_line(f"{type(error).__name__}: {error}"))


async def read_events(content: aiohttp.StreamReader, watch: Stopwatch) -> Failure | None:
    """What is wrong with the stream; None where it is whole. It is read to its end, behind [DONE] too: a connection
    that is left before is not used again, and the next request would wait for another one."""
    parser = EventParser()
    async for chunk in content.iter_any():
        try:
            if not watch.done and (failure := take_events(parser.feed(chunk), watch)):
                return failure
        except (msgspec.DecodeError, UnicodeDecodeError, TooLongError) as error:
            return Failure("no stream of events", one_line(str(error)))
    if watch.done:
        return None if watch.times else Failure("no tokens", "the stream ended without a token")
    if not watch.times:
        return Failure("no stream of events", "the answer ended, and no event in it had a token")
    if not watch.finished:
        return Failure("ended early", f"after {len(watch.times)} events, without a finish_reason")
    return None


def take_events(events: Iterable[bytes], watch: Stopwatch) -> Failure | None:
    """Up to [DONE]. A Failure where one is an error."""
    for data in events:
        if data == DONE:
            watch.done = True
            return None
        event = event_decoder.decode(data)
        if event.is_error:
            return Failure("error event", one_line(bytes(event.error).decode()))
        watch.take(event)
    return None


def one_line(text: str) -> str:
    return " ".join(text.split())[:MAX_MESSAGE]
