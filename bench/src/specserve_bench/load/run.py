"""A run: all requests, sent at their times while no more than the limit are under way. Knows no HTTP."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from specserve_bench.client.records import RequestRecord


class Load(NamedTuple):
    """`times`: seconds since the begin, one for each request. `concurrency`: None for no limit."""

    times: Sequence[float]
    concurrency: int | None


class Run(NamedTuple):
    records: list[RequestRecord]
    """Of requests that ended, in order of their numbers."""
    num_wanted: int
    whole_seconds: float
    """From the begin of the run until all requests had ended, or to the interrupt."""

    @property
    def interrupted(self) -> bool:
        return len(self.records) < self.num_wanted

    @property
    def seconds(self) -> float:
        """From the begin of the run until the last answer ended, as `vllm bench serve` counts. Of a run that was
        interrupted, to the last token of all: what the requests under way had got by then is not counted."""
        return max((record.ended for record in self.records), default=0.0) if self.interrupted else self.whole_seconds


async def run_load(
    load: Load, send: Callable[[int], Awaitable[RequestRecord]], on_record: Callable[[RequestRecord], None]
) -> Run:
    """`send(i)` sends request i. SIGINT ends the run: requests under way are dropped, the others are returned."""
    room = asyncio.Semaphore(load.concurrency or len(load.times) or 1)
    loop = asyncio.get_running_loop()
    began = loop.time()
    records: list[RequestRecord] = []

    async def send_at(number: int, at: float) -> None:
        if (wait := began + at - loop.time()) > 0:
            await asyncio.sleep(wait)
        async with room:
            record = await send(number)
        records.append(record)
        on_record(record)

    tasks = [asyncio.create_task(send_at(number, at)) for number, at in enumerate(load.times)]

    def stop() -> None:
        for task in tasks:
            task.cancel()

    with suppress(NotImplementedError, RuntimeError):  # where the loop has no signals: another thread, or Windows
        loop.add_signal_handler(signal.SIGINT, stop)
    try:
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        with suppress(NotImplementedError, RuntimeError):
            loop.remove_signal_handler(signal.SIGINT)
    whole_seconds = loop.time() - began
    for error in ended:
        if isinstance(error, Exception):
            raise error
    return Run(sorted(records, key=lambda record: record.number), len(load.times), whole_seconds)
