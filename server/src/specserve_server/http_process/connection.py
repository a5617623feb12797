"""The engine as a further process has it: connected, not started, and told of its end by the first process."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from specserve.errors import EngineDeadError
from specserve_server.engine_process import frames
from specserve_server.engine_process.channel import Channel
from specserve_server.engine_process.launch import END_SECONDS
from specserve_server.engine_process.private_directory import engine_socket
from specserve_server.engine_process.start import Startup, attach_remote, make_tokenizer
from specserve_server.load_progress import LoadProgress

if TYPE_CHECKING:
    from pathlib import Path

    from specserve_server.config import ServerConfig
    from specserve_server.engines.attached import AttachedEngine

TELL_SECONDS = 2.0
"""How long the first process may take to tell how the engine's process has ended."""


class SharedProcess:
    """Implements `specserve_server.engine_process.launch.LaunchedProcess`: of the engine, which others use, too."""

    def __init__(self, channel: Channel[frames.FromEngine], death: asyncio.Future[str]) -> None:
        self.channel, self.death = channel, death

    async def wait(self) -> str:
        """Whoever started it knows how it ended, and tells soon."""
        await asyncio.wait([self.death], timeout=TELL_SECONDS)
        return self.death.result() if self.death.done() else "its process closed the connection"

    async def end(self) -> None:
        """It goes on; what it did for this process ends."""
        if not self.death.done():
            self.death.set_result("it was stopped")
        await asyncio.wait([self.channel.lost], timeout=END_SECONDS)
        self.channel.close()


async def connect(directory: Path, server: ServerConfig, death: asyncio.Future[str]) -> AttachedEngine:
    """`death`: how the engine died, once that is known. Raises EngineDeadError where its process has ended."""
    end = socket.socket(socket.AF_UNIX)
    end.setblocking(False)
    startup = Startup(LoadProgress())
    try:
        await asyncio.get_running_loop().sock_connect(end, engine_socket(directory))
        channel: Channel[frames.FromEngine] = await Channel.connect(end, frames.FromEngine, startup.receive)
        loaded = await startup.wait(channel)
    except OSError as error:
        end.close()
        raise EngineDeadError(f"the engine's process takes no connection: {error}.") from error
    if loaded is None:
        raise EngineDeadError("the engine's process has closed the connection.")
    tokenizer = await asyncio.to_thread(make_tokenizer, loaded.tokenizer)
    return await attach_remote(channel, SharedProcess(channel, death), startup, tokenizer, server)
