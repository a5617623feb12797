"""Clients: conversations that send their whole text in every turn, and requests at once."""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING

import aiohttp

if TYPE_CHECKING:
    from processes import RoutedServer

WORDS = [
    "def",
    "return",
    "self",
    "import",
    "class",
    "for",
    "while",
    "if",
    "else",
    "None",
    "True",
    "open",
    "path",
    "index",
    "value",
    "list",
    "dict",
    "text",
    "line",
]
NUM_CONVERSATIONS, NUM_TURNS, AT_ONCE = 12, 6, 4


async def converse(url: str, seed: int = 0) -> None:
    """Every conversation begins with a text of its own; all turns must be answered."""
    at_once = asyncio.Semaphore(AT_ONCE)
    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(conversation(session, url, seed * 100 + i, at_once) for i in range(NUM_CONVERSATIONS)))


async def conversation(session: aiohttp.ClientSession, url: str, seed: int, at_once: asyncio.Semaphore) -> None:
    numbers = random.Random(seed)
    text = f"# file {seed}\n" + some_words(numbers, 80)
    for _ in range(NUM_TURNS):
        body = {"model": "demo", "prompt": text, "max_tokens": 16, "temperature": 0, "ignore_eos": True}
        headers = {"X-Session-ID": str(seed)}
        async with at_once, session.post(f"{url}/v1/completions", json=body, headers=headers) as response:
            assert response.status == 200, await response.text()
            text += (await response.json())["choices"][0]["text"] + "\n" + some_words(numbers, 20)


def some_words(numbers: random.Random, count: int) -> str:
    return " ".join(numbers.choice(WORDS) for _ in range(count))


def hit_rate(servers: list[RoutedServer]) -> float:
    """Of all tokens that were looked up in the prefix caches of these servers, the share that was there."""
    hits = sum(server.metric("vllm:prefix_cache_hits_total") for server in servers)
    return hits / sum(server.metric("vllm:prefix_cache_queries_total") for server in servers)


async def generate(session: aiohttp.ClientSession, url: str, number: int, tokens: int, *, stream: bool) -> str:
    """How one request ended: done, failed before its first token, or cut off."""
    body = {
        "model": "demo", "prompt": f"# request {number}\n", "max_tokens": tokens, "ignore_eos": True, "stream": stream,
    }  # fmt: skip
    begun = False
    try:
        async with session.post(f"{url}/v1/completions", json=body) as response:
            if response.status != 200:
                return "failed"
            if not stream:
                return "done" if (await response.json())["usage"]["completion_tokens"] == tokens else "cut off"
            async for line in response.content:
                if line.strip() == b"data: [DONE]":
                    return "done"
                if line.startswith(b"data: "):
                    if "error" in json.loads(line[6:]):
                        return "cut off"
                    begun = True
    except (aiohttp.ClientError, ConnectionError):
        pass
    return "cut off" if begun else "failed"
