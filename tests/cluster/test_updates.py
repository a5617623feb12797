"""The application is replaced while it serves, and what clients have loaded is there afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from typing import TYPE_CHECKING

import aiohttp
from served import BIN, ENGINE_TABLES, RAY_TABLE
from test_changes import LOAD, UNLOAD, adapter_texts

if TYPE_CHECKING:
    from pathlib import Path

    from served import Served

    from clients import Client

NUM_CLIENTS = 6


async def ask_until(client: Client, stopped: asyncio.Event, number: int) -> list[str]:
    """What each stream came to: `done`, or what went wrong."""
    ended = []
    while not stopped.is_set():
        last = "nothing"
        try:
            async for event in client.events("/v1/completions", prompt=f"# {number} {len(ended)}\n", max_tokens=20):
                last = "done" if isinstance(event, str) else str(event.get("error", "no end"))
        except (OSError, AssertionError, aiohttp.ClientError) as error:
            last = repr(error)
        ended.append(last)
    return ended


async def until_there_are(number: int, client: Client) -> set[str]:
    """Routers are told a moment after Ray says that it is done."""
    async with asyncio.timeout(10):
        while len(found := await client.replica_ids()) != number:
            await asyncio.sleep(0.1)
    return found


def update(config: Path, cluster: Served) -> subprocess.CompletedProcess[str]:
    port = cluster.url.rpartition(":")[2]
    tables = ENGINE_TABLES.replace("port = 0", f"port = {port}")
    config.write_text(tables + RAY_TABLE.format(replicas=3, address=json.dumps(cluster.address)))
    command = [str(BIN / "specserve-ray"), "update", str(config)]
    environment = {**os.environ, "RAY_AUTH_MODE": "token"}  # Ray's own default for a new cluster, and for no address
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)


async def test_an_update_loses_no_request_and_keeps_adapters(cluster: Served, replicas: Client, tmp_path: Path) -> None:
    assert (await replicas.post(LOAD, lora_name="kept", lora_path="docstrings")).status == 200
    wanted = set.union(*(await adapter_texts(replicas, "kept")).values())
    before = await replicas.replica_ids()
    stopped = asyncio.Event()
    clients = [asyncio.create_task(ask_until(replicas, stopped, number)) for number in range(NUM_CLIENTS)]
    done = await asyncio.to_thread(update, tmp_path / "more.toml", cluster)
    assert done.returncode == 0, done.stderr
    after = await until_there_are(3, replicas)
    stopped.set()
    ended = [each for list_of_one in await asyncio.gather(*clients) for each in list_of_one]
    print(f"{len(ended)} streams during an update from {len(before)} to {len(after)} replicas")
    assert not before & after, "every replica is new"
    assert set(ended) == {"done"}
    found = await adapter_texts(replicas, "kept")
    assert len(found) >= 2
    assert set.union(*found.values()) == wanted
    assert (await replicas.post(UNLOAD, lora_name="kept")).status == 200
