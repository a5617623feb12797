"""`serve` as a task of the test's own event loop, over the fake engine."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
from patience import PATIENCE

from specserve_server.app.run import serve
from specserve_server.config import ServerConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest
    from fake_engine import FakeEngine


def starter(engine: FakeEngine) -> Any:
    async def start() -> FakeEngine:
        return engine

    return start


class Server:
    """`serve` in a task, with what it printed."""

    def __init__(self, engine: FakeEngine, capsys: pytest.CaptureFixture[str], **options: Any) -> None:
        self.capsys = capsys
        self.task = asyncio.create_task(serve(starter(engine), ServerConfig(**{"port": 0, **options})))

    async def ready_line(self) -> str:
        async with asyncio.timeout(PATIENCE):
            while not (line := self.capsys.readouterr().out):
                if self.task.done():
                    self.task.result()
                await asyncio.sleep(0.005)
        return line.strip()

    async def url(self) -> str:
        line = await self.ready_line()
        assert line.startswith("specserve: ready on http://127.0.0.1:")
        return line.split()[-1]

    @asynccontextmanager
    async def session(self) -> AsyncIterator[aiohttp.ClientSession]:
        async with aiohttp.ClientSession(await self.url()) as session:
            yield session


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


async def stop(server: Server) -> None:
    interrupt()
    assert await server.task == 0
