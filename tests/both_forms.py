"""An engine as the server has it over a socket, whose other end is served in the same process: a test sees both."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from specserve_server.engine_process import frames
from specserve_server.engine_process.channel import Channel
from specserve_server.engine_process.host import EngineHost
from specserve_server.engine_process.loaded import loaded_frame
from specserve_server.engine_process.private_directory import private_directory, routes_socket
from specserve_server.engine_process.route_server import served_routes
from specserve_server.engine_process.start import Startup, attach_remote
from specserve_server.engines.in_process import attach_in_process
from specserve_server.load_progress import LoadProgress

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from specserve_server.config import ServerConfig
    from specserve_server.engines.attached import AttachedEngine


FORMS = ("direct", "socket")


@asynccontextmanager
async def in_form(form: str, engine: Any, config: ServerConfig) -> AsyncIterator[Any]:
    """What `make_app` is given."""
    if form == "direct":
        yield engine
        return
    async with over_a_socket(engine, config) as attached:
        yield attached


class ThisProcess:
    """In place of an engine's process: it ends with its host."""

    def __init__(self, host: EngineHost) -> None:
        self.host = host

    async def wait(self) -> str:
        return "its process is this one"

    async def end(self) -> None:
        await self.host.stopped
        self.host.channel.close()


@asynccontextmanager
async def over_a_socket(engine: Any, config: ServerConfig) -> AsyncIterator[AttachedEngine]:
    """`engine`: a `HostedEngine`."""
    ours, theirs = socket.socketpair()
    hosts: list[EngineHost] = []
    startup = Startup(LoadProgress())
    to_engine: Channel[Any] = await Channel.connect(ours, frames.FromEngine, startup.receive)
    to_server: Channel[Any] = await Channel.connect(theirs, frames.FromServer, lambda frame: hosts[0].receive(frame))
    attached = await attach_in_process(engine, config)
    with private_directory() as directory:
        async with served_routes(attached.routes, config, routes_socket(directory)):
            hosts.append(EngineHost(to_server, engine, attached, engine.stop))
            to_server.send(loaded_frame(engine, [], directory, tuple(attached.routes.paths)))
            await startup.loaded
            try:
                yield await attach_remote(to_engine, ThisProcess(hosts[0]), startup, engine.tokenizer, config)
            finally:
                to_engine.close()
                await asyncio.shield(to_server.lost)
                await hosts[0].leave()
                await attached.routes.close()
