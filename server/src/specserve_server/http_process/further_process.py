"""One further process, as the first one has it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from specserve.errors import SpecserveError
from specserve_server.engine_process.channel import Channel
from specserve_server.engine_process.launch import launch
from specserve_server.http_process import frames

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve_server.engine_process.launch import ChildProcess


class FurtherProcess:
    """Made by `start`. `counted` is given what it has counted."""

    def __init__(
        self, process: ChildProcess, channel: Channel[frames.FromFurther], counted: Callable[[frames.Counted], None]
    ) -> None:
        self.process, self.channel, self.counted = process, channel, counted
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.create_task(process.ended())
        """How it ended."""
        channel.receive = self.receive

    @classmethod
    async def start(cls, serve: frames.Serve, counted: Callable[[frames.Counted], None]) -> FurtherProcess:
        """Its signals are the first process's business; it ends with the socket between them."""
        process, end = await launch("specserve_server.http_process")
        channel: Channel[frames.FromFurther] = await Channel.connect(end, frames.FromFurther, nothing_yet)
        further = cls(process, channel, counted)
        channel.send(serve)
        return further

    @property
    def pid(self) -> int:
        return self.process.pid

    def receive(self, frame: frames.FromFurther) -> None:
        match frame:
            case frames.Ready():
                self.ready.set_result(None)
            case frames.Counted():
                self.counted(frame)

    async def until_ready(self) -> None:
        """Raises SpecserveError where it ends before; its own line on standard error says why."""
        ends: list[asyncio.Future[Any]] = [self.ready, self.ended]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not self.ready.done():
            raise SpecserveError(f"a further HTTP process could not be started: it {self.ended.result()}.")

    def send(self, frame: frames.FromFirst) -> None:
        self.channel.send(frame)

    async def kill(self) -> None:
        """Where it still runs."""
        self.process.kill()
        await self.ended
        self.channel.close()


def nothing_yet(frame: frames.FromFurther) -> None:
    raise AssertionError(f"a process sent a {type(frame).__name__} before it was asked to serve")
