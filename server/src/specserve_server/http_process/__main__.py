"""A further process: `python -m specserve_server.http_process FD`, started by the first one with one end of a socket.
It ends when the first process says so, and at once when that has ended, however that was.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from specserve.command.exit_codes import run_command
from specserve.loading_thread import exit_at_once
from specserve_server.engine_process.channel import Channel
from specserve_server.engine_process.launched import begin
from specserve_server.http_process import frames
from specserve_server.http_process.service import Asked, serve

if TYPE_CHECKING:
    import socket


class Process:
    """Receives what the first process asks."""

    def __init__(self) -> None:
        self.started: asyncio.Future[frames.Serve] = asyncio.get_running_loop().create_future()
        self.asked = Asked()

    def receive(self, frame: frames.FromFirst) -> None:
        match frame:
            case frames.Serve():
                self.started.set_result(frame)
            case frames.Reload():
                self.asked.reload()
            case frames.EngineDied(error):
                self.asked.tell_death(error)
            case frames.Drain(seconds):
                self.asked.drain(seconds)
            case frames.Abort():
                self.asked.abort()

    async def run(self, end: socket.socket) -> int:
        channel: Channel[frames.FromFirst] = await Channel.connect(end, frames.FromFirst, self.receive)
        serving = asyncio.ensure_future(self.serve(channel))
        ends: list[asyncio.Future[Any]] = [serving, channel.lost]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            exit_at_once(1)
        channel.close()
        await channel.lost
        return serving.result()

    async def serve(self, channel: Channel[frames.FromFirst]) -> int:
        return await serve(await self.started, self.asked, channel)


async def run(end: socket.socket) -> int:
    return await Process().run(end)


def main() -> int:
    end = begin()
    return run_command(lambda: asyncio.run(run(end)))


if __name__ == "__main__":
    sys.exit(main())
