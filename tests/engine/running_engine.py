"""An engine for asyncio that runs during a test, and what its readers do."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from specserve.config import EngineConfig
from specserve.engine.async_engine import AsyncEngine
from specserve_workbench.testing.drafters import OracleDrafter
from specserve_workbench.testing.engines import DEFAULTS, drafter_plugin
from specserve_workbench.testing.requests import toy_request

SECONDS = 120.0
"""Seconds after which what did not happen is a failure."""


@asynccontextmanager
async def started(model, *, extra=None, **options):
    """A running engine, stopped at the end, when its blocks and requests are checked."""
    engine = await AsyncEngine.start(EngineConfig(model=str(model), **(DEFAULTS | options)), extra=extra)
    try:
        yield engine
    finally:
        await asyncio.wait_for(engine.stop(), SECONDS)
    assert not engine.thread.is_alive()
    if engine.status != "dead":
        engine.engine.check_integrity()


def with_oracle(outputs, width=4):
    """Options that enable an oracle and leave what is verified to the cost planner."""
    return {"extra": {"drafter": drafter_plugin(lambda: OracleDrafter(outputs, width))}, "plugins": ("drafter",)}


def endless(name="endless"):
    return toy_request(name, range(1, 20), max_tokens=1500, ignore_eos=True)


async def collect(engine, request):
    async with asyncio.timeout(SECONDS):
        return [output async for output in engine.submit(request)]


def merged(outputs):
    whole = outputs[0]
    for output in outputs[1:]:
        whole = whole.merge(output)
    return whole


async def until(condition):
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.002)


def free_again(engine):
    pool = engine.engine.scheduler.pool
    return not engine.engine.requests and pool.num_available == pool.num_blocks
