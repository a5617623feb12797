"""Conversations stay where their prefix is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clients import Client

NUM_TURNS = 5
SUBJECTS = "sorting searching parsing hashing caching routing drafting scheduling logging testing"


async def converse(client: Client, subject: str) -> set[str]:
    """The replicas that answered."""
    system = f"This is about {subject} only. " + " ".join(f"{subject} rule {number} holds." for number in range(12))
    messages = [{"role": "system", "content": system}]
    found = set()
    for turn in range(NUM_TURNS):
        messages.append({"role": "user", "content": f"{turn}: what of {subject} comes next?"})
        answer = await client.post("/v1/chat/completions", messages=messages, max_tokens=24, temperature=0)
        messages.append({"role": "assistant", "content": answer.json["choices"][0]["message"]["content"]})
        found.add(answer.headers.get("X-Specserve-Replica", ""))
    return found


async def hit_rate(client: Client) -> tuple[float, list[set[str]]]:
    """The share of prompt tokens that the prefix cache served, and the replicas of each conversation."""
    await client.send("POST", "/reset_prefix_cache")
    names = ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total")
    before = [await client.total(name) for name in names]
    replicas = await asyncio.gather(*(converse(client, subject) for subject in SUBJECTS.split()))
    hits, queries = [await client.total(name) - old for name, old in zip(names, before, strict=True)]
    return hits / queries, replicas


async def test_two_replicas_hit_prefixes_nearly_as_often_as_one_server(replicas: Client, single: Client) -> None:
    (found, used), (wanted, _) = await hit_rate(replicas), await hit_rate(single)
    print(f"prefix hits: {found:.3f} of two replicas, {wanted:.3f} of one server")
    assert wanted > 0.5, "the workload has prefixes"
    assert found >= 0.9 * wanted
    assert set.union(*used) == await replicas.replica_ids(), "both replicas took part"


async def test_choices_are_counted_by_reason(replicas: Client) -> None:
    reasons = {s.labels["reason"] for s in await replicas.metrics() if s.name == "specserve_router_choices_total"}
    assert "prefix" in reasons
    assert await replicas.total("specserve_router_replicas") == 2
