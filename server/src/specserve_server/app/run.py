"""The server process: listen, load, print the ready line, serve until a signal or the engine's death, drain, stop.

The first signal turns /health to 503, serves on for a while if that is configured, and drains for a limited time; a
second one aborts what still runs.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import nullcontext
from typing import TYPE_CHECKING

from specserve.announcements import announce, announce_failure
from specserve.errors import SpecserveError
from specserve_server.app.access_log import access_log_on_stderr
from specserve_server.app.application import make_app
from specserve_server.app.http_runner import HttpRunner
from specserve_server.app.json_lines import line_fields
from specserve_server.app.listening import listening
from specserve_server.app.preparing_threads import preparing_threads
from specserve_server.app.reloading import ReloadedFile, reloaded_on_hangup
from specserve_server.app.signals import Signals, wait_for_first
from specserve_server.app.tls import Tls
from specserve_server.state.server_state import STATE, ServerState

if TYPE_CHECKING:
    from aiohttp import web

    from specserve_server.app.application import EngineStarter
    from specserve_server.config import ServerConfig
    from specserve_server.engine_client import EngineClient, LoadedEngine
    from specserve_server.engines.attached import AttachedEngine
    from specserve_server.load_progress import LoadProgress


async def serve(start: EngineStarter, config: ServerConfig, progress: LoadProgress | None = None) -> int:
    """The exit code: 0 after a signal, 1 when the engine died. ConfigError when it cannot start. `progress`: how far
    `start` is, for /health."""
    asyncio.get_running_loop().set_default_executor(preparing_threads())
    listens = asyncio.Event()

    async def start_when_listening() -> LoadedEngine | AttachedEngine:
        await listens.wait()
        return await start()

    app = make_app(start_when_listening, config, progress)
    runner = HttpRunner(app)
    tls = None if config.tls_cert is None else Tls(config)
    with nullcontext() if config.access_log == "none" else access_log_on_stderr():
        try:
            files = reloaded_files(app[STATE], tls)
            with Signals() as signals, reloaded_on_hangup(files, lambda: app[STATE].processes.reload()):
                await runner.setup()
                async with listening(runner, config, tls) as address:
                    listens.set()
                    return await run_until_stopped(runner, signals, ready_line(address, config.log_format))
        finally:
            await app[STATE].processes.end()
            await runner.cleanup()


def reloaded_files(state: ServerState, tls: Tls | None) -> list[ReloadedFile]:
    files = []
    if state.config.api_key_file is not None:
        files.append(ReloadedFile("the API keys", state.keys.reload))
    if tls is not None:
        files.append(ReloadedFile("the TLS certificate and its key", tls.reload))
    return files


async def run_until_stopped(runner: web.AppRunner, signals: Signals, ready: str) -> int:
    state = runner.app[STATE]
    assert state.loading is not None
    await wait_for_first(state.loading, signals.first.wait())
    if not signals.first.is_set():
        state.loading.result()  # raises what stopped the loading
        assert state.engine is not None
        await wait_for_first(serve_until_death(runner, state.engine, ready), signals.first.wait())
    if not signals.first.is_set():
        assert state.engine is not None
        return await tell_death(state, state.engine)
    state.leaving = True
    if state.engine is not None:
        await wait_before_draining(state.engine, state.config.drain_wait, signals)
    state.draining = True
    if state.engine is not None and state.engine.status == "dead":
        return await tell_death(state, state.engine)
    if state.engine is not None:
        await drain(state, state.engine, signals)
    return 0


async def serve_until_death(runner: web.AppRunner, engine: EngineClient, ready: str) -> None:
    state = runner.app[STATE]
    await wait_for_first(state.processes.start(runner, state.responses, state.groups), engine.failed())
    if engine.status != "dead":
        print(ready, flush=True)
        await engine.failed()


async def tell_death(state: ServerState, engine: EngineClient) -> int:
    error = await engine.failed()
    text = str(error) if isinstance(error, SpecserveError) else repr(error)
    announce_failure(f"the engine died: {text}")
    state.processes.tell_death(text)
    return 1


async def wait_before_draining(engine: EngineClient, seconds: float, signals: Signals) -> None:
    """Load balancers see that /health is 503 and go away; until they have, requests are served."""
    if seconds > 0:
        announce(f"/health is 503, and requests are served for {seconds:g} s more; signal again to abort")
        await wait_for_first(wait(seconds), engine.failed(), signals.second.wait())


async def wait(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def drain(state: ServerState, engine: EngineClient, signals: Signals) -> None:
    announce(f"draining for at most {state.config.drain_seconds:g} s; signal again to abort")
    await wait_for_first(drain_all(state, engine), signals.second.wait())
    if signals.second.is_set():
        await asyncio.gather(state.processes.end(), engine.stop(0.0))


async def drain_all(state: ServerState, engine: EngineClient) -> None:
    """All processes at the same time; the engine ends last."""
    left = await state.processes.drain(state.config.drain_seconds)
    await engine.stop(left)


def ready_line(address: str, log_format: str) -> str:
    """For standard output: whoever started the server waits for it."""
    text = f"ready on {address}"
    return json.dumps(line_fields("INFO", "specserve", text)) if log_format == "json" else f"specserve: {text}"
