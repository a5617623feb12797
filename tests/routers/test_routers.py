"""Unmodified routers before two servers: they know what each has, send requests where their beginnings are cached, and
answer around a server that dies or drains."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections import Counter
from urllib.request import urlopen

import aiohttp
import pytest
from conversations import NUM_CONVERSATIONS, NUM_TURNS, converse, generate, hit_rate, some_words
from processes import installed, routing, serving

ROUTERS = ("smg", "vllm-router")
EVENTS = ("--kv-events", "tcp://127.0.0.1:*")
POLICIES = {
    "smg by its own tree": ("smg", (), ("--policy", "cache_aware")),
    "vllm-router by its own tree": ("vllm-router", (), ("--policy", "cache_aware")),
    "vllm-router by KV events": (
        "vllm-router", EVENTS, ("--policy", "kv_aware", "--kv-aware-session-affinity-ttl-secs", "600"),
    ),
}  # fmt: skip
"""With KV events and without sessions it weighs a server's load against what it has: docs/scale.md has the figures."""
BLOCK_SIZE = 16
ENOUGH = 0.9
"""Of one server's prefix hits."""


@pytest.fixture(scope="module", autouse=True)
def routers_are_installed():
    assert all(installed(router) for router in ROUTERS), "run make test-routers"


@pytest.fixture(scope="module")
def hits_of_one_server():
    with serving(1) as servers:
        asyncio.run(converse(servers[0].url))
        yield hit_rate(servers)


@pytest.mark.parametrize("policy", POLICIES)
def test_conversations_find_their_beginnings_cached(policy, hits_of_one_server, record_property):
    router, server_flags, router_flags = POLICIES[policy]
    with serving(2, *server_flags) as servers, routing(router, servers, *router_flags) as url:
        asyncio.run(converse(url))
        shares = [server.metric("vllm:request_success_total") for server in servers]
        found = hit_rate(servers)
    print(f"{policy}: hits {found:.3f}, one server {hits_of_one_server:.3f}, requests {shares}")
    assert sum(shares) == NUM_CONVERSATIONS * NUM_TURNS
    assert min(shares) > 0 or router == "smg", "both served; smg by chance may give all beginnings to one"
    assert found >= ENOUGH * hits_of_one_server


def test_requests_at_random_find_less(hits_of_one_server):
    """So the share above is the policies' doing."""
    with serving(2) as servers, routing("smg", servers, "--policy", "random") as url:
        asyncio.run(converse(url))
        assert hit_rate(servers) < ENOUGH * hits_of_one_server


async def test_kv_events_tell_a_router_what_it_never_sent():
    """Both servers were asked directly; each then gets what it has the beginning of, and nothing else."""
    texts = [some_words(random.Random(seed), 80) for seed in range(8)]
    with serving(2, *EVENTS) as servers, routing("vllm-router", servers, "--policy", "kv_aware") as url:
        async with aiohttp.ClientSession() as session:
            for i, text in enumerate(texts):
                await complete(session, servers[i % 2].url, text)
            await asyncio.sleep(0.5)
            for order, i in enumerate((0, 2, 1, 4, 3, 6, 5, 7)):
                usage = await complete(session, url, f"{texts[i]} and more")
                cached = usage["prompt_tokens_details"]["cached_tokens"]
                assert usage["prompt_tokens"] - cached < 2 * BLOCK_SIZE, f"request {order}"


async def complete(session, url, text):
    body = {"model": "demo", "prompt": text, "max_tokens": 1}
    async with session.post(f"{url}/v1/completions", json=body) as response:
        return (await response.json())["usage"]


def test_smg_takes_the_server_for_one_that_speaks_as_vllm_does_and_reads_its_load():
    flags = ("--policy", "least_load", "--load-monitor-interval", "1")
    with serving(2) as servers, routing("smg", servers, *flags) as url:
        for _ in range(50):
            with urlopen(f"{url}/workers") as answer:
                workers = json.load(answer)["workers"]
            if all(worker.get("engine_load", {}).get("loads") for worker in workers):
                break
            asyncio.run(asyncio.sleep(0.1))
        for worker in workers:
            assert worker["runtime_type"] == "vllm"
            assert worker["labels"]["served_model_name"] == "demo"
            assert worker["engine_load"]["loads"][0]["max_total_num_tokens"] > 0
            assert worker["engine_load"]["version"] == "0.1.0"


@pytest.mark.parametrize("router", ROUTERS)
async def test_a_killed_server_takes_only_its_own_streams_with_it(router):
    with serving(2) as servers, routing(router, servers, "--policy", "round_robin") as url:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            requests = [asyncio.create_task(generate(session, url, i, 300, stream=i % 4 < 2)) for i in range(64)]
            while sum(server.metric("vllm:generation_tokens_total") for server in servers) < 600:
                await asyncio.sleep(0.05)
            theirs = sum(servers[0].metric(f"vllm:num_requests_{state}") for state in ("running", "waiting"))
            servers[0].stop(signal.SIGKILL)
            outcomes = [await request for request in requests]
            streams = Counter(outcome for i, outcome in enumerate(outcomes) if i % 4 < 2)
            whole = Counter(outcome for i, outcome in enumerate(outcomes) if i % 4 >= 2)
            print(f"{router}: {theirs} at the dead server, streams {dict(streams)}, whole answers {dict(whole)}")
            assert streams["cut off"] + streams["failed"] <= theirs < 48, "those of the dead server"
            assert whole == {"done": 32}, "the router asks the other server"
            later = await asyncio.gather(*(generate(session, url, i, 4, stream=True) for i in range(16)))
            assert later == ["done"] * 16


@pytest.mark.parametrize("router", ROUTERS)
async def test_a_server_that_is_told_to_end_loses_no_request(router):
    interval = ("--health-check-interval-secs", "1", "--health-failure-threshold", "1")
    with serving(2, "--drain-wait", "4", "--drain-seconds", "20") as servers:
        with routing(router, servers, "--policy", "round_robin", *interval) as url:
            async with aiohttp.ClientSession() as session:
                ending = asyncio.create_task(end_later(servers[0]))
                outcomes = []
                while not ending.done():
                    outcomes += await asyncio.gather(*(generate(session, url, i, 8, stream=True) for i in range(4)))
                assert ending.result() == 0
                outcomes += await asyncio.gather(*(generate(session, url, i, 8, stream=True) for i in range(8)))
        assert Counter(outcomes) == {"done": len(outcomes)}
        assert len(outcomes) > 40


async def end_later(server):
    await asyncio.sleep(1)
    return await asyncio.to_thread(server.stop)
