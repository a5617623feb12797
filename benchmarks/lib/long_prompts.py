"""A client in a process of its own that floods a server with chats of 100 kB, some at once.

`python -m benchmarks.lib.long_prompts URL` prints "flooding" once the first was answered, and at a line on standard
input {"answered"}: how many were answered by then. The prompts are longer than the context, so that the engine
computes none of them: what they cost is HTTP, JSON, templates and tokenizing.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter

import aiohttp

AT_ONCE = 4
BODY = {"messages": [{"role": "user", "content": "def add(a, b): return a + b\n" * 3600}], "max_tokens": 1}


async def main(url: str) -> None:
    statuses: Counter[int] = Counter()
    async with aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=0)) as session:
        flood = [asyncio.create_task(ask_on(session, statuses)) for _ in range(AT_ONCE)]
        while not statuses:
            await asyncio.sleep(0.01)
        print("flooding", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        for each in flood:
            each.cancel()
        await asyncio.gather(*flood, return_exceptions=True)
    print(json.dumps({"answered": statuses.total()}), flush=True)


async def ask_on(session: aiohttp.ClientSession, statuses: Counter[int]) -> None:
    data = json.dumps(BODY).encode()
    while True:
        async with session.post("/v1/chat/completions", data=data) as answer:
            await answer.read()
            statuses[answer.status] += 1


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
