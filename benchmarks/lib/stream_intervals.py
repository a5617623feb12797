"""Streaming clients in a process of their own that note when each event comes.

`python -m benchmarks.lib.stream_intervals URL < bodies.json` streams all bodies at once, prints "decoding" when each
has its first event, and at the end {"intervals"}: from then on, the seconds between one event and the next of the same
stream, of all streams. One event is one engine step.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from itertools import pairwise

import aiohttp

from benchmarks.lib.http_clients import Body, ClientError


async def main(url: str, bodies: list[Body]) -> list[float]:
    waiting = set(range(len(bodies)))
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:
        found = await asyncio.gather(*(event_times(session, url, body, waiting, i) for i, body in enumerate(bodies)))
    began = max(times[0] for times in found)
    return [b - a for times in found for a, b in pairwise(times) if a >= began]


async def event_times(
    session: aiohttp.ClientSession, url: str, body: Body, waiting: set[int], number: int
) -> list[float]:
    """`waiting`: the streams that have no event yet."""
    times: list[float] = []
    async with session.post(f"{url}/v1/completions", json=body) as answer:
        if answer.status != 200:
            raise ClientError(f"the server answered {answer.status}: {await answer.text()}")
        async for chunk in answer.content.iter_any():
            if b'"choices":[{' in chunk:
                times.append(time.perf_counter())
                if number in waiting:
                    waiting.remove(number)
                    if not waiting:
                        print("decoding", flush=True)
    return times


if __name__ == "__main__":
    print(json.dumps({"intervals": asyncio.run(main(sys.argv[1], json.load(sys.stdin)))}))
