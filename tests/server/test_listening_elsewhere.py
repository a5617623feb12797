"""What a system without Linux's way of sharing a port is told."""

from __future__ import annotations

import sys

import pytest
from aiohttp import web

from specserve.errors import ConfigError
from specserve_server.app.listening import listening
from specserve_server.config import ServerConfig


async def test_several_processes_on_one_port_are_refused_on_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    runner = web.AppRunner(web.Application())
    with pytest.raises(ConfigError, match=r"http_processes above 1 needs Linux.*; got 2 on darwin\. Leave it at 1\."):
        async with listening(runner, ServerConfig(http_processes=2, port=0), None):
            pass


async def test_one_process_listens_on_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = web.AppRunner(web.Application())
    await runner.setup()
    monkeypatch.setattr(sys, "platform", "darwin")
    async with listening(runner, ServerConfig(port=0), None) as address:
        assert address.startswith("http://127.0.0.1:")
    await runner.cleanup()
