"""Streaming clients in a process of their own: `python -m benchmarks.lib.http_clients URL < bodies.json`.

Reads a JSON list of request bodies, sends all at once, and prints {"seconds", "num_tokens"}: from the first
request sent to the last token. Raw aiohttp; events are counted but not parsed, except the last one.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import aiohttp


async def main(url: str, bodies: list[dict[str, Any]]) -> dict[str, Any]:
    encoded = [json.dumps(body).encode() for body in bodies]
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:
        began = time.perf_counter()
        counts = await asyncio.gather(*(stream(session, url, body) for body in encoded))
        seconds = time.perf_counter() - began
    return {"seconds": seconds, "num_tokens": sum(counts)}


async def stream(session: aiohttp.ClientSession, url: str, body: bytes) -> int:
    """The number of tokens that the stream's usage event reports."""
    tail = b""
    headers = {"Content-Type": "application/json"}
    async with session.post(f"{url}/v1/completions", data=body, headers=headers) as answer:
        if answer.status != 200:
            raise RuntimeError(f"the server answered {answer.status}: {await answer.text()}")
        async for chunk in answer.content.iter_any():
            tail = (tail + chunk)[-4096:]
    events = tail.decode().strip().split("\n\n")
    if events[-1] != "data: [DONE]":
        raise RuntimeError(f"the stream ended early: {events[-1]}")
    usage: int = json.loads(events[-2].removeprefix("data: "))["usage"]["completion_tokens"]
    return usage


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], json.load(sys.stdin)))))
