"""Clients that cost a server more than they give it, in a process of their own: idle ones, slow readers, a flood.

`python -m benchmarks.lib.unfriendly_clients URL` opens the idle connections, has the slow readers' texts generated, and
prints "ready". At a line on standard input it begins to read slowly and floods the queue; at the next it prints
{"refused", "failed", "reading"} and ends: counts of 429s, of other ends of the flood, and of slow readers that still
have text to read.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections import Counter

import aiohttp
from yarl import URL

NUM_IDLE, NUM_SLOW, NUM_WAITING = 256, 64, 16
FLOOD_PER_SECOND = 100
SLOW_BYTES, SLOW_SECONDS = 1024, 0.25
"""What a slow reader reads at once, and how long it sleeps then."""
SLOW = {"prompt": "def add(a, b):", "max_tokens": 100, "logprobs": 20, "return_token_ids": True, "stream": True}
WAITING = {"prompt": "def add(a, b):", "max_tokens": 1000, "ignore_eos": True}
HEAD = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"


async def main(url: URL) -> None:
    counts: Counter[str] = Counter()
    loop = asyncio.get_running_loop()
    idle = [await asyncio.open_connection(url.host, url.port) for _ in range(NUM_IDLE)]
    may_read = asyncio.Event()
    async with aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=0)) as session:
        readers = [asyncio.create_task(read_slowly(url, may_read, await begin(session, url))) for _ in range(NUM_SLOW)]
        await until_idle(session)
        print("ready", flush=True)
        await loop.run_in_executor(None, sys.stdin.readline)
        may_read.set()
        flooding = asyncio.create_task(flood(session, counts))
        await loop.run_in_executor(None, sys.stdin.readline)
        flooding.cancel()
        counts["reading"] = sum(not reader.done() for reader in readers)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(flooding, *readers, return_exceptions=True)
    for _, writer in idle:
        writer.close()
    print(json.dumps({key: counts[key] for key in ("refused", "failed", "reading")}), flush=True)


async def begin(session: aiohttp.ClientSession, url: URL) -> socket.socket:
    """Sends a slow reader's request once the queue has room. The socket takes little before the reader reads."""
    while (await load(session)) >= NUM_WAITING:
        await asyncio.sleep(0.05)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((url.host, url.port))
    connection.setblocking(False)
    body = json.dumps(SLOW | {"temperature": 0, "ignore_eos": True})
    await asyncio.get_running_loop().sock_sendall(connection, (HEAD.format(len(body)) + body).encode())
    await asyncio.sleep(0.01)
    return connection


async def read_slowly(url: URL, may_read: asyncio.Event, connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    with connection:
        await may_read.wait()
        while b"[DONE]" not in await loop.sock_recv(connection, SLOW_BYTES):
            await asyncio.sleep(SLOW_SECONDS)


async def load(session: aiohttp.ClientSession) -> int:
    async with session.get("/load") as answer:
        return int((await answer.json())["server_load"])


async def until_idle(session: aiohttp.ClientSession) -> None:
    while await load(session):
        await asyncio.sleep(0.1)


async def flood(session: aiohttp.ClientSession, counts: Counter[str]) -> None:
    """FLOOD_PER_SECOND requests a second: the first ones fill the queue and wait, all others are to be refused."""
    async with asyncio.TaskGroup() as requests:
        while True:
            requests.create_task(one_too_many(session, counts))
            await asyncio.sleep(1 / FLOOD_PER_SECOND)


async def one_too_many(session: aiohttp.ClientSession, counts: Counter[str]) -> None:
    try:
        async with session.post("/v1/completions", json=WAITING) as answer:
            counts["refused" if answer.status == 429 else "failed"] += 1
    except aiohttp.ClientError:
        counts["failed"] += 1


if __name__ == "__main__":
    asyncio.run(main(URL(sys.argv[1])))
