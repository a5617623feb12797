"""Those who change the server while it serves: adapters, corpora, the prefix cache; and one who reads its metrics."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from soak.cases import MOVING, VERSIONS
from soak.metrics import read_metrics
from soak.words import text

if TYPE_CHECKING:
    import random

    from soak.clients import Run

LOAD, UNLOAD, CORPORA = "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/ngram/corpora"
STEP_SECONDS = 0.05


async def post(run: Run, path: str, body: dict[str, Any], *allowed: int) -> int:
    """The status, which must be one of these."""
    async with run.session.post(path, json=body) as answer:
        run.ledger.requests[path] += 1
        if answer.status not in allowed:
            run.ledger.fail("operator", f"POST {path}: {answer.status}: {await answer.text()}", body=body)
        elif answer.status >= 400:
            run.ledger.refused[answer.status] += 1
        return answer.status


async def unload(run: Run) -> None:
    """409 while requests use it."""
    while await post(run, UNLOAD, {"lora_name": MOVING}, 200, 409, 404) == 409:
        await asyncio.sleep(STEP_SECONDS)


async def change_adapters(run: Run, rng: random.Random) -> None:
    """Loads, replaces and unloads the moving adapter; 429 where requests use all that may be loaded."""
    while run.goes_on:
        for version in rng.choices(VERSIONS, k=rng.randint(1, 4)):
            body = {"lora_name": MOVING, "lora_path": version, "load_inplace": True}
            await post(run, LOAD, body, 200, 429)
            await asyncio.sleep(rng.random() * 0.5)
        await unload(run)
        await asyncio.sleep(STEP_SECONDS)
    await unload(run)


async def change_corpora(run: Run, rng: random.Random) -> None:
    """Adds and deletes corpora, some of them while they load; all are gone at the end."""
    held: list[str] = []
    number = 0
    while run.goes_on:
        number += 1
        name = f"corpus-{number}"
        documents = [text(rng, rng.randint(1, 200)) for _ in range(rng.randint(1, 3))]
        if await post(run, CORPORA, {"name": name, "documents": documents}, 202, 409) == 202:
            held.append(name)
        while len(held) > rng.randint(0, 3):
            await delete_corpus(run, held.pop(rng.randrange(len(held))))
        await asyncio.sleep(rng.random())
    for name in held:
        await delete_corpus(run, name)


async def delete_corpus(run: Run, name: str) -> None:
    async with run.session.delete(f"{CORPORA}/{name}") as answer:
        run.ledger.requests[f"DELETE {CORPORA}"] += 1
        if answer.status not in (200, 204):
            run.ledger.fail("operator", f"DELETE {name}: {answer.status}: {await answer.text()}")


async def reset_the_cache(run: Run, rng: random.Random) -> None:
    while run.goes_on:
        await asyncio.sleep(rng.random() * 2)
        await post(run, "/reset_prefix_cache", {}, 200)


async def read_the_metrics(run: Run, most_running: int) -> None:
    while run.goes_on:
        await asyncio.sleep(0.5)
        values = await read_metrics(run.session)
        run.ledger.requests["/metrics"] += 1
        usage, running = values["vllm:kv_cache_usage_perc"], values["vllm:num_requests_running"]
        if not 0 <= usage <= 1 or running > most_running:
            run.ledger.fail("metrics", f"the cache is {usage} full and {running} requests run")
