"""What a further process does from its start to its end: connect, listen, serve, drain."""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from specserve.tracing import start_tracing
from specserve_server.app.access_log import access_log_on_stderr
from specserve_server.app.application import ROUTES, make_app
from specserve_server.app.http_runner import HttpRunner
from specserve_server.app.json_lines import convert_handlers_of_libraries, is_in_json
from specserve_server.app.log_lines import log_to_stderr
from specserve_server.app.preparing_threads import preparing_threads
from specserve_server.app.reloading import reload_all
from specserve_server.app.run import reloaded_files
from specserve_server.app.signals import wait_for_first
from specserve_server.app.tls import Tls
from specserve_server.engine_process.channel import nothing
from specserve_server.engine_process.forwarding import Forwarding
from specserve_server.engine_process.private_directory import server_socket
from specserve_server.http_process import frames
from specserve_server.http_process.connection import connect
from specserve_server.http_process.counts import tell_counts, tell_counts_once
from specserve_server.http_process.passing_on import with_passed_on
from specserve_server.http_process.sharing import listen_beside
from specserve_server.state.server_state import STATE

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from specserve_server.engine_process.channel import Channel
    from specserve_server.state.server_state import ServerState

logger = logging.getLogger(__name__)


class Asked:
    """What the first process has asked so far."""

    def __init__(self) -> None:
        self.reload: Callable[[], None] = nothing
        self.death: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """How the engine died."""
        self.draining, self.aborting = asyncio.Event(), asyncio.Event()
        self.drain_seconds = 0.0

    def tell_death(self, error: str) -> None:
        if not self.death.done():
            self.death.set_result(error)

    def drain(self, seconds: float) -> None:
        self.drain_seconds = seconds
        self.draining.set()

    def abort(self) -> None:
        self.aborting.set()
        self.draining.set()


async def serve(start: frames.Serve, asked: Asked, channel: Channel[frames.FromFirst]) -> int:
    """The exit code. Raises SpecserveError where it cannot serve."""
    begin_as(start)
    directory = Path(start.directory)
    attached = await connect(directory, start.server, asked.death)
    first = Forwarding(server_socket(directory))
    try:
        app = make_app(attached, start.server, routes=with_passed_on(ROUTES, first))
        return await run_app(app, start, asked, channel)
    finally:
        await first.close()


async def run_app(app: web.Application, start: frames.Serve, asked: Asked, channel: Channel[frames.FromFirst]) -> int:
    runner, config, state = HttpRunner(app), start.server, app[STATE]
    tls = None if config.tls_cert is None else Tls(config)
    asked.reload = partial(reload_all, reloaded_files(state, tls), logger.info)
    if is_in_json():
        convert_handlers_of_libraries()  # of those that were imported meanwhile
    telling = asyncio.create_task(tell_counts(channel, state))
    with nullcontext() if config.access_log == "none" else access_log_on_stderr():
        try:
            await runner.setup()
            await listen_beside(runner, start.addresses, tls)
            channel.send(frames.Ready())
            return await serve_until_asked(state, asked)
        finally:
            await runner.cleanup()
            telling.cancel()
            tell_counts_once(channel, state)


def begin_as(start: frames.Serve) -> None:
    """As the first process."""
    sys.path[:] = start.search_path
    log_to_stderr(start.server.log_level, start.server.log_format)
    start_tracing(start.trace_topics, start.trace_form)
    asyncio.get_running_loop().set_default_executor(preparing_threads())


async def serve_until_asked(state: ServerState, asked: Asked) -> int:
    """To stop, or until the engine dies."""
    engine = state.engine
    assert engine is not None
    await wait_for_first(engine.failed(), asked.draining.wait())
    if engine.status == "dead":
        return 1
    state.draining = True
    await wait_for_first(until_all_are_answered(state), asyncio.sleep(asked.drain_seconds), asked.aborting.wait())
    await engine.stop()
    return 0


async def until_all_are_answered(state: ServerState) -> None:
    while state.num_answering:
        await asyncio.sleep(0.01)
