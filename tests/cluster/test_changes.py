"""Adapters and corpora reach every replica, or none."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
from served import HEALTH_CHECK_SECONDS, KEY

from clients import until_replaced
from process_table import command_line

if TYPE_CHECKING:
    from served import Served

    from clients import Answer, Client

LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
CORPORA = "/v1/ngram/corpora"
PROMPT = "def add(a, b):"


async def adapter_texts(client: Client, name: str) -> dict[str, set[str]]:
    """By replica, the texts that it answers with the adapter."""
    bodies = [{"model": name, "prompt": PROMPT, "max_tokens": 12, "temperature": 0}] * 24
    found: dict[str, set[str]] = {}
    for answer in await asyncio.gather(*(client.post("/v1/completions", **body) for body in bodies)):
        assert answer.status == 200, answer.body
        found.setdefault(answer.headers.get("X-Specserve-Replica", ""), set()).add(answer.json["choices"][0]["text"])
    return found


async def send_to_one(pid: int, path: str, body: dict[str, str]) -> int:
    """Behind the back of all others, by the unix socket of one replica: its status."""
    socket = next(path for path in sockets_of(pid))
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as session,
        session.post(f"http://replica{path}", json=body, headers={"Authorization": f"Bearer {KEY}"}) as response,
    ):
        return response.status


def sockets_of(pid: int) -> list[Path]:
    """The sockets at which it listens, by /proc/net/unix."""
    inodes = {link.readlink().name for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    named = {f"socket:[{fields[6]}]": fields[7] for fields in lines if len(fields) > 7}
    return [Path(named[inode]) for inode in inodes if inode in named and "/specserve-" in named[inode]]


async def test_an_adapter_that_is_loaded_once_serves_on_every_replica(replicas: Client, single: Client) -> None:
    for client in (replicas, single):
        answer = await client.post(LOAD, lora_name="docs", lora_path="docstrings")
        assert (answer.status, answer.body) == (200, b"Success: LoRA adapter 'docs' added successfully.")
    (wanted,) = (await adapter_texts(single, "docs")).values()
    found = await adapter_texts(replicas, "docs")
    assert found == dict.fromkeys(await replicas.replica_ids(), wanted)
    for client in (replicas, single):
        assert (await client.post(UNLOAD, lora_name="docs")).status == 200
    answer = await replicas.post("/v1/completions", model="docs", prompt=PROMPT, max_tokens=1)
    assert answer.status == 404


async def test_what_one_replica_refuses_is_undone_on_the_others(cluster: Served, replicas: Client) -> None:
    first, second = cluster.replica_pids
    assert await send_to_one(first, LOAD, {"lora_name": "half", "lora_path": "tests"}) == 200
    answer = await replicas.post(LOAD, lora_name="half", lora_path="docstrings")
    assert answer.status == 409
    assert "loaded already" in answer.json["error"]["message"]
    assert "It was undone on the replicas that had accepted it." in answer.json["error"]["message"]
    assert await send_to_one(second, UNLOAD, {"lora_name": "half"}) == 404, "nothing is half loaded"
    assert await send_to_one(first, UNLOAD, {"lora_name": "half"}) == 200
    assert (await replicas.post(LOAD, lora_name="half", lora_path="docstrings")).status == 200
    assert (await replicas.post(UNLOAD, lora_name="half")).status == 200


async def test_a_corpus_is_loaded_by_every_replica(cluster: Served, replicas: Client) -> None:
    answer = await replicas.post(CORPORA, name="letters", documents=["Dear Sir or Madam, " * 40])
    assert answer.status == 202, answer.body
    await until_ready(replicas, "letters")
    for pid in cluster.replica_pids:
        assert await send_to_one(pid, CORPORA, {"name": "letters"}) in (400, 409)
    assert [each["name"] for each in (await replicas.send("GET", CORPORA)).json["data"]] == ["letters"]
    assert (await replicas.send("DELETE", f"{CORPORA}/letters")).status == 200
    assert (await replicas.send("GET", f"{CORPORA}/letters")).status == 404


async def test_changes_outlive_the_actor_that_keeps_them(cluster: Served, replicas: Client) -> None:
    assert (await replicas.post(LOAD, lora_name="kept", lora_path="docstrings")).status == 200
    before = await replicas.replica_ids()
    (actor,) = cluster.descendants_with("ray::Changes")
    os.kill(actor, signal.SIGKILL)
    await asyncio.sleep(2 * HEALTH_CHECK_SECONDS)  # a replica gives the next actor its log
    os.kill(cluster.replica_pids[0], signal.SIGKILL)
    await until_replaced(replicas, before)
    assert set(await adapter_texts(replicas, "kept")) == await replicas.replica_ids()
    assert (await replicas.post(UNLOAD, lora_name="kept")).status == 200


async def until_ready(client: Client, name: str) -> Answer:
    async with asyncio.timeout(10):
        while (answer := await client.send("GET", f"{CORPORA}/{name}")).json["state"] != "ready":
            await asyncio.sleep(0.05)
    return answer


def test_replicas_have_processes_of_their_own(cluster: Served) -> None:
    assert len(cluster.replica_pids) == 2
    assert all("replicas" in command_line(pid) for pid in cluster.replica_pids)
