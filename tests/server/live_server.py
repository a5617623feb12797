"""A server over a real engine on the toy model, in a thread of its own, for tests that are not coroutines themselves.

Runs as `specserve serve` does: native kernels, n-gram drafts, one adapter, a route cancelled with its client. The
client lives in the server's event loop; `call` runs a coroutine there.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web

from specserve.config import EngineConfig
from specserve.engine.async_engine import AsyncEngine
from specserve_server.app.application import make_app
from specserve_server.app.http_runner import HttpRunner
from specserve_server.config import ServerConfig
from specserve_workbench.testing.engines import DEFAULTS
from toy_adapters import lora_options, write_adapter

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from pathlib import Path

ADAPTER = "tuned"
MAX_MODEL_LEN = 512
PATIENCE = 60.0
"""Seconds after which a call is a failure, not a wait."""


class LiveServer:
    """Made by `serving`. `engine` and `client` belong to `loop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.engine: Any = None
        self.client: Any = None
        self.address = ("", 0)

    def call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(coroutine, PATIENCE), self.loop).result()

    @property
    def url(self) -> str:
        return f"http://{self.address[0]}:{self.address[1]}"


@contextmanager
def serving(model: Path, adapter_dir: Path, *, drafts: bool = True) -> Iterator[LiveServer]:
    """Serve until the block ends, with n-gram drafts or without."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="live-server")
    thread.start()
    server = LiveServer(loop)
    try:
        runner = server.call(start(server, model, write_adapter(adapter_dir, model, size=0.5), drafts))
        try:
            yield server
        finally:
            server.call(stop(server, runner))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def start(server: LiveServer, model: Path, adapter: Path, drafts: bool) -> web.AppRunner:
    config = EngineConfig(
        model=str(model),
        plugins=("ngram", "lora") if drafts else ("lora",),
        plugin_options=lora_options({ADAPTER: adapter}),
        max_model_len=MAX_MODEL_LEN,
        max_waiting=2048,
        **DEFAULTS | {"default_plugins": True},
    )
    server.engine = await AsyncEngine.start(config)
    app = make_app(server.engine, ServerConfig(served_model_name="toy"))
    runner = HttpRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.address = runner.addresses[0]
    server.client = aiohttp.ClientSession(server.url, timeout=aiohttp.ClientTimeout(PATIENCE))
    return runner


async def stop(server: LiveServer, runner: web.AppRunner) -> None:
    await server.client.close()
    await runner.cleanup()
