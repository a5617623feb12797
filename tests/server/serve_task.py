"""`serve` as a task of the test's own event loop, over the fake engine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from specserve.config import ServerConfig
from specserve.server.run import serve

if TYPE_CHECKING:
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
        self.task = asyncio.create_task(serve(starter(engine), ServerConfig(port=0, **options)))

    async def url(self) -> str:
        async with asyncio.timeout(5):
            while not (line := self.capsys.readouterr().out):
                await asyncio.sleep(0.005)
        assert line.startswith("specserve: ready on http://127.0.0.1:")
        return line.split()[-1]
