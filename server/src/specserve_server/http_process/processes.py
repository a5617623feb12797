"""All further processes of a server: started, kept running, and ended with the first one."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from aiohttp import web

from specserve.announcements import announce
from specserve_server.engine_process.launch import END_SECONDS
from specserve_server.engine_process.private_directory import server_socket
from specserve_server.engine_process.start import traced
from specserve_server.http_process import frames
from specserve_server.http_process.counts import include
from specserve_server.http_process.further_process import FurtherProcess
from specserve_server.http_process.sharing import addresses_of
from specserve_server.state.further_processes import ONE_PROCESS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from specserve_server.config import ServerConfig
    from specserve_server.state.further_processes import FurtherProcesses
    from specserve_server.state.group_metrics import GroupMetrics
    from specserve_server.state.response_counts import ResponseCounts

SECONDS_BETWEEN_STARTS = 1.0
"""At least, before another process is started in place of one that has ended."""


def http_processes(config: ServerConfig, directory: Path) -> FurtherProcesses:
    """`directory`: of the sockets of the engine that they share."""
    return ONE_PROCESS if config.http_processes == 1 else HttpProcesses(config, directory)


class HttpProcesses:
    """Implements `specserve_server.state.further_processes.FurtherProcesses`."""

    def __init__(self, config: ServerConfig, directory: Path) -> None:
        self.config, self.directory = config, directory
        self.running: set[FurtherProcess] = set()
        self.keepers: set[asyncio.Task[None]] = set()
        """A task for each process, which starts another one when it ends."""
        self.last_frame: frames.FromFirst = frames.Abort()

    async def start(self, runner: web.AppRunner, responses: ResponseCounts, groups: GroupMetrics) -> None:
        addresses = addresses_of(runner)
        await web.UnixSite(runner, server_socket(self.directory)).start()
        serve = frames.Serve(self.config, addresses, str(self.directory), tuple(sys.path), *traced())

        def counted(frame: frames.Counted) -> None:
            include(frame, responses, groups)

        first = [await self.launch(serve, counted) for _ in range(self.config.http_processes - 1)]
        await asyncio.gather(*(process.until_ready() for process in first))
        self.keepers = {asyncio.create_task(self.keep(process, serve, counted)) for process in first}

    async def launch(self, serve: frames.Serve, counted: Callable[[frames.Counted], None]) -> FurtherProcess:
        process = await FurtherProcess.start(serve, counted)
        self.running.add(process)
        return process

    async def keep(
        self, process: FurtherProcess, serve: frames.Serve, counted: Callable[[frames.Counted], None]
    ) -> None:
        """The engine drops the requests of a process that has ended; their clients see a broken connection."""
        while True:
            how = await asyncio.shield(process.ended)
            announce(f"the HTTP process {process.pid} {how}; its connections are lost, and another one is started")
            self.running.remove(process)
            process.channel.close()
            await asyncio.sleep(SECONDS_BETWEEN_STARTS)
            process = await self.launch(serve, counted)

    def send(self, frame: frames.FromFirst) -> None:
        for process in self.running:
            process.send(frame)

    def keep_none(self) -> None:
        for keeper in self.keepers:
            keeper.cancel()

    def reload(self) -> None:
        self.send(frames.Reload())

    async def drain(self, seconds: float) -> float:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        self.keep_none()
        self.send(frames.Drain(seconds))
        await self.wait(seconds)
        return max(until - loop.time(), 0.0)

    async def wait(self, seconds: float) -> None:
        """For the end of all, for so long."""
        if self.running:
            await asyncio.wait([process.ended for process in self.running], timeout=seconds)

    def tell_death(self, error: str) -> None:
        """They end by themselves: their engine has died, too."""
        self.last_frame = frames.EngineDied(error)

    async def end(self) -> None:
        self.keep_none()
        self.send(self.last_frame)
        await self.wait(END_SECONDS)
        await asyncio.gather(*(process.kill() for process in self.running))
