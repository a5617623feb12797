"""Server processes that connect to a running engine. Each has a host of its own, and its end is nobody else's."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from specserve_server.engine_process import frames
from specserve_server.engine_process.channel import Channel
from specserve_server.engine_process.host import EngineHost

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from specserve_server.engine_client import HostedEngine
    from specserve_server.engines.attached import AttachedEngine

SECONDS_BETWEEN_TRIES = 0.1
"""Where a connection cannot be taken, for lack of file descriptors."""
logger = logging.getLogger(__name__)


@asynccontextmanager
async def further_servers(
    path: str, engine: HostedEngine, attached: AttachedEngine, loaded: frames.Loaded
) -> AsyncIterator[None]:
    """Who connects to the socket at `path` is sent `loaded`, and served until the end of the block."""
    tasks: set[asyncio.Task[None]] = set()

    def serve(end: socket.socket) -> None:
        task = asyncio.create_task(serve_one(end, engine, attached, loaded))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.setblocking(False)
        listener.bind(path)
        listener.listen()
        accepting = asyncio.create_task(accept(listener, serve))
        try:
            yield
        finally:
            every = (accepting, *tasks)
            for task in every:
                task.cancel()
            await asyncio.gather(*every, return_exceptions=True)


async def accept(listener: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    loop = asyncio.get_running_loop()
    while True:
        try:
            end, _ = await loop.sock_accept(listener)
        except OSError as error:
            logger.error("a server process could not connect: %s", error)
            await asyncio.sleep(SECONDS_BETWEEN_TRIES)
        else:
            serve(end)


async def serve_one(end: socket.socket, engine: HostedEngine, attached: AttachedEngine, loaded: frames.Loaded) -> None:
    """Until it asks for its end, or is lost."""
    channel: Channel[frames.FromServer] = await Channel.connect(end, frames.FromServer, nothing_yet)
    host = EngineHost(channel, engine, attached, others_are_served)
    channel.receive = host.receive
    channel.send(loaded)
    try:
        await asyncio.wait([host.stopped, channel.lost], return_when=asyncio.FIRST_COMPLETED)
    finally:
        channel.close()
        await host.leave()


def nothing_yet(frame: frames.FromServer) -> None:
    raise AssertionError(f"a server sent a {type(frame).__name__} before it was told of the engine")


async def others_are_served() -> None:
    """The engine goes on."""
