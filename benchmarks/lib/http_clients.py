"""Streaming HTTP clients in a process of their own, and the throughput that they see.

`python -m benchmarks.lib.http_clients URL < bodies.json` sends all bodies at once and prints {"seconds",
"num_tokens"}, from the first request sent to the last token. Raw aiohttp; only the last event of a stream is parsed.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import aiohttp

if TYPE_CHECKING:
    from collections.abc import Sequence

Body = dict[str, object]


class ClientError(RuntimeError):
    """A client failed or got another number of tokens than it asked for."""


def streaming_throughput(url: str, bodies: Sequence[Body]) -> float:
    """Tokens per second of one client per body; each body must ask for exactly its `max_tokens`. Raises ClientError."""
    clients = subprocess.run(
        [sys.executable, "-m", "benchmarks.lib.http_clients", url],
        input=json.dumps(bodies),
        capture_output=True,
        text=True,
        check=False,
    )
    if clients.returncode:
        raise ClientError(f"the clients failed:\n{clients.stderr.strip()}")
    seconds, num_tokens = (float(json.loads(clients.stdout)[key]) for key in ("seconds", "num_tokens"))
    expected = sum(int(str(body["max_tokens"])) for body in bodies)
    if num_tokens != expected:
        raise ClientError(f"{num_tokens:.0f} tokens instead of {expected}")
    return num_tokens / seconds


def completion_body(prompt: Sequence[int], num_tokens: int, temperature: float) -> Body:
    return {
        "prompt": list(prompt),
        "max_tokens": num_tokens,
        "temperature": temperature,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def main(url: str, bodies: list[Body]) -> dict[str, float]:
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
