"""Serving until a signal or the engine's death: listen, load, say ready, drain, stop.

Owns the process's life around the application. The first signal turns readiness to 503 and drains, with a
bound; a second one aborts what still runs.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING, Any

from aiohttp import web

from specserve.errors import ConfigError
from specserve.server import http_log
from specserve.server.app import make_app
from specserve.server.state import STATE, ServerState

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from specserve.config import ServerConfig
    from specserve.server.app import EngineStarter

SIGNALS = (signal.SIGINT, signal.SIGTERM)
WRITE_OUT_SECONDS = 5.0
"""How long open connections may take to send what is already generated."""
READ_OUT_SECONDS = 1.0
"""How long the rest of a refused body is still read, and inflated, so that its client sees the answer."""


class Signals:
    """`first` and `second` are set by SIGINT or SIGTERM; a third has its default effect."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()

    def __enter__(self) -> Signals:
        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._arrive)
        return self

    def __exit__(self, *_: object) -> None:
        for number in SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)

    def _arrive(self) -> None:
        if not self.first.is_set():
            self.first.set()
            return
        self.second.set()
        self.__exit__()


async def serve(start: EngineStarter, config: ServerConfig) -> int:
    """The exit code: 0 after a signal, 1 when the engine died. ConfigError when it cannot start."""
    app = make_app(start, config)
    runner = make_runner(app)
    try:
        with Signals() as signals:
            await runner.setup()
            await listen(runner, config)
            return await live(app[STATE], signals, ready_line(runner, config))
    finally:
        await runner.cleanup()


def make_runner(app: web.Application) -> web.AppRunner:
    return web.AppRunner(
        app,
        handler_cancellation=True,
        shutdown_timeout=WRITE_OUT_SECONDS,
        lingering_time=READ_OUT_SECONDS,
        access_log=None,
        logger=http_log.logger,
    )


async def listen(runner: web.AppRunner, config: ServerConfig) -> None:
    try:
        await web.TCPSite(runner, config.host, config.port).start()
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {config.host}:{config.port}: {error.strerror or error}. Choose another --host or --port."
        ) from error


def ready_line(runner: web.AppRunner, config: ServerConfig) -> str:
    """With the port that the system gave for port 0."""
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"specserve: ready on http://{host}:{runner.addresses[0][1]}"


async def live(state: ServerState, signals: Signals, ready: str) -> int:
    assert state.loading is not None
    await first_of(state.loading, signals.first.wait())
    if not signals.first.is_set():
        state.loading.result()  # raises what stopped the loading
        print(ready, flush=True)
        assert state.engine is not None
        await first_of(state.engine.failed(), signals.first.wait())
    if not signals.first.is_set():
        assert state.engine is not None
        cause = await state.engine.failed()
        print(f"specserve: the engine died: {cause!r}", file=sys.stderr, flush=True)
        return 1
    state.draining = True
    if state.engine is not None:
        await drain(state, signals)
    return 0


async def drain(state: ServerState, signals: Signals) -> None:
    seconds = state.config.drain_seconds
    print(f"specserve: draining for at most {seconds:g} s; signal again to abort", file=sys.stderr, flush=True)
    assert state.engine is not None
    await first_of(state.engine.stop(seconds), signals.second.wait())
    if signals.second.is_set():
        await state.engine.stop(0.0)


async def first_of(*waits: Awaitable[Any]) -> None:
    """Wait for one of them; its error is raised. The others are cancelled, but no task that was passed in is
    cancelled or has its error raised: it has an owner."""
    own = [asyncio.ensure_future(wait) for wait in waits if not isinstance(wait, asyncio.Task)]
    given = [wait for wait in waits if isinstance(wait, asyncio.Task)]
    done, _ = await asyncio.wait([*given, *own], return_when=asyncio.FIRST_COMPLETED)
    for task in own:
        task.cancel()
    await asyncio.gather(*own, return_exceptions=True)
    for task in own:
        if task in done:
            task.result()
