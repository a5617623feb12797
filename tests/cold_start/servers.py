"""Fresh servers with all plugins, and their first requests: all APIs, all at once."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
from contextlib import contextmanager
from itertools import cycle, islice
from typing import TYPE_CHECKING, NamedTuple

import aiohttp

from cold_start.bodies import BODIES
from server_process import ServerProcess, serve_command, stopped_well

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PLUGINS = ("adaptive", "cpu", "eagle", "grammar", "hybrid_attn", "kv_events", "lora", "ngram")
KV_ENDPOINT = "tcp://127.0.0.1:*"
FIRST_REQUESTS = 48
SECONDS = 120
"""For all answers, with other processes on every core."""


class Answer(NamedTuple):
    status: int
    choices: str
    """In JSON; "null" where the API's answers have none, or it was streamed."""


def serve_first_requests(model: Path, log: Path, form: str) -> list[list[Answer]]:
    """Start a server in this form, send it the requests, end it. The answers, by body. Raises where one of its
    processes died."""
    flags = [f"--{form}", "--threads", "1", "--kv-memory", "16M", "--max-model-len", "512"]
    flags += ["--set", f"eagle.model={model}", "--set", f"kv_events.endpoint={KV_ENDPOINT}"]
    flags += [flag for name in PLUGINS for flag in ("--plugin", name)]
    with stopped_well(ServerProcess(serve_command(model, *flags), log)) as server:
        assert len(server.engine_pids) == (form == "engine-process")
        answers = asyncio.run(send_all(server.url))
    return [answers[place :: len(BODIES)] for place in range(len(BODIES))]


async def send_all(url: str) -> list[Answer]:
    timeout, connector = aiohttp.ClientTimeout(SECONDS), aiohttp.TCPConnector(limit=FIRST_REQUESTS)
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(url, timeout=timeout, connector=connector, headers=headers) as session:

        async def send(path: str, body: bytes) -> Answer:
            async with session.post(path, data=body) as response:
                text = await response.text()
                choices = response.content_type == "application/json" and json.loads(text).get("choices")
                return Answer(response.status, json.dumps(choices or None))

        return list(await asyncio.gather(*(send(path, body) for path, body in islice(cycle(BODIES), FIRST_REQUESTS))))


@contextmanager
def busy_cores() -> Iterator[None]:
    """A process per core that does nothing but run. The servers have three quarters of a core's time before it."""
    fresh = multiprocessing.get_context("spawn")
    burners = [fresh.Process(target=burn, daemon=True) for _ in range(multiprocessing.cpu_count())]
    for burner in burners:
        burner.start()
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.join()


def burn() -> None:
    os.nice(5)
    while True:
        pass
