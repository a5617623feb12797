"""Loading, replacing and unloading while 64 requests run: no token is lost, and no adapter changes under a request."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import aclosing

import msgspec
import pytest

from specserve.config import EngineConfig
from specserve.engine.async_engine import AsyncEngine
from specserve.errors import QueueFullError, RequestError
from specserve_lora.adapter_dir import unconfined_dir
from specserve_workbench.testing.engines import DEFAULTS, run_requests
from specserve_workbench.testing.requests import varied_requests
from toy_adapters import lora_engine, lora_of, lora_options, under, write_adapter

NAMES = ("a1", "a3", "a4", "x")


async def serve(engine, store, request, name):
    """As the server does it: pin, submit, unpin once the engine has forgotten the request."""
    while True:
        try:
            pin = await asyncio.to_thread(store.pin, name)
        except QueueFullError:  # all are in use: the client tries again
            await asyncio.sleep(0.01)
            continue
        if pin is not None:
            break
        await asyncio.sleep(0.01)  # unloaded just now
    tokens = []
    try:
        async with aclosing(engine.submit(msgspec.structs.replace(request, adapter=pin.id))) as outputs:
            async for output in outputs:
                assert output.finish_reason != "error", output.error
                tokens += output.tokens
    finally:
        engine.after_aborts(lambda: store.unpin(pin))
    return pin.id, tokens


async def attempt(refusals, action, *arguments, **options):
    """True where it was done; else its status is noted."""
    try:
        await asyncio.to_thread(action, *arguments, **options)
    except RequestError as error:
        refusals.add(error.status)
        await asyncio.sleep(0.002)
        return False
    return True


async def replace_and_unload(store, versions, refusals):
    """Replaces x by each version in turn; unloads adapters that are not in use, and loads them again."""
    for version in itertools.cycle(versions):
        await attempt(refusals, store.load, "x", version, replace=True)
        for name in ("a4", "x"):
            known = store.known[name].directory
            if await attempt(refusals, store.unload, name):
                while not await attempt(refusals, store.load, name, known):
                    pass
        await asyncio.sleep(0.002)


async def test_sixty_four_requests_while_adapters_come_and_go(toy_model, adapters, tmp_path):
    versions = [
        unconfined_dir(str(write_adapter(tmp_path / str(i), toy_model, seed=70 + i, size=0.5))) for i in range(3)
    ]
    given = {name: adapters[name] for name in NAMES[:3]} | {"x": versions[0].path}
    options = DEFAULTS | {"max_num_seqs": 16, "default_plugins": True}
    config = EngineConfig(
        model=str(toy_model), plugins=("lora", "ngram"), plugin_options=lora_options(given, max_loaded=5), **options
    )
    requests, names = varied_requests(64, seed=9), [NAMES[i % 4] for i in range(64)]
    engine = await AsyncEngine.start(config)
    store = lora_of(engine.engine)
    refusals: set[int] = set()
    task = asyncio.create_task(replace_and_unload(store, versions, refusals))
    rounds = []
    async with asyncio.timeout(300):
        while store.num_loads < 12:  # a fast machine serves all of them between two loads
            rounds.append(await asyncio.gather(*map(serve, [engine] * 64, [store] * 64, requests, names)))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await engine.stop()
    assert refusals <= {409, 429}, "in use, or nothing to evict"
    assert not any(store.usage().values())
    store.check_integrity()

    everything = given | {f"x{i}": version.path for i, version in enumerate(versions)}
    alone, others = lora_engine(toy_model, everything, default_plugins=True)
    by_id = {id.partition("@")[2]: name for name, id in others.names().items()}
    for served in rounds:
        named = [by_id[id.partition("@")[2]] for id, _ in served]
        expected = run_requests(alone, under(others, requests, named)).tokens()
        assert {request.request_id: tokens for request, (_, tokens) in zip(requests, served, strict=True)} == expected
