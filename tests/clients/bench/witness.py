"""What a client and a server said to each other, with the times: a relay between them, which changes nothing.

What a client tells of a run can then be compared with what came over the wire in that same run: neither what chance
does to the server nor the server's own way to its socket is in it.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from itertools import pairwise
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from typing import Self

    from two_clients import Load

TOKENS = re.compile(rb'"choices": ?\[\{')
"""In each event with tokens; the last event, with usage, has no choice."""
END = b"data: [DONE]"
READ = 65536
LONGEST_MARK = 20
"""Bytes of a mark that may stand at the end of one read and the begin of the next."""


class Answer:
    """Times in seconds."""

    def __init__(self) -> None:
        self.asked = time.perf_counter()
        self.events: list[float] = []
        self.ended = 0.0
        self._tail = b""

    def take(self, data: bytes) -> None:
        now, text = time.perf_counter(), self._tail + data
        old = len(TOKENS.findall(self._tail))
        self.events += [now] * (len(TOKENS.findall(text)) - old)
        self.ended = self.ended or (now if END in text else 0.0)
        self._tail = text[-LONGEST_MARK:]


class Witnessed(NamedTuple):
    """Means of a run in milliseconds, and its tokens per second, as two_clients.Figures has them."""

    tokens_per_second: float
    ttft: float
    tpot: float
    itl: float
    e2e: float


class Witness:
    """Relays in a thread. `url` is in the place of the server's."""

    def __init__(self, server: str) -> None:
        parts = urlsplit(server)
        self._server = (parts.hostname, parts.port)
        self._answers: list[Answer] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        listening = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._relay, "127.0.0.1", 0), self._loop)
        port = listening.result(10).sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def take(self, load: Load) -> Witnessed:
        """Of the run that has just ended, without what warmed up; forgets it."""
        answers, self._answers = self._answers[-load.num_requests :], []
        assert len(answers) == load.num_requests
        assert all(answer.ended for answer in answers)
        gaps = [b - a for answer in answers for a, b in pairwise(answer.events)]
        seconds = max(answer.ended for answer in answers) - min(answer.asked for answer in answers)
        after_first = [answer.events[-1] - answer.events[0] for answer in answers]
        return Witnessed(
            tokens_per_second=load.num_requests * load.num_tokens / seconds,
            ttft=1000 * mean(answer.events[0] - answer.asked for answer in answers),
            tpot=1000 * mean(after_first) / (load.num_tokens - 1),
            itl=1000 * mean(gaps),
            e2e=1000 * mean(answer.events[-1] - answer.asked for answer in answers),
        )

    async def _relay(self, reader: StreamReader, writer: StreamWriter) -> None:
        """A client does not wait for the connection to the server: it has its own already."""
        connecting = asyncio.ensure_future(asyncio.open_connection(*self._server))
        current: Answer | None = None

        async def ask() -> None:
            nonlocal current
            while data := await reader.read(READ):
                if data.startswith(b"POST "):
                    current = Answer()
                    self._answers.append(current)
                (await connecting)[1].write(data)
            (await connecting)[1].close()

        async def answer() -> None:
            from_server = (await connecting)[0]
            while data := await from_server.read(READ):
                if current is not None:
                    current.take(data)
                writer.write(data)
            writer.close()

        await asyncio.gather(ask(), answer(), return_exceptions=True)
