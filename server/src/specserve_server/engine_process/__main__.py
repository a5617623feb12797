"""The engine's process: `python -m specserve_server.engine_process FD`, started by the server with one end of a
socket. It ends when the server says so, and at once when the server has ended, however that was.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

from specserve.errors import SpecserveError
from specserve.loading_thread import exit_at_once, is_loading
from specserve.tracing import start_tracing
from specserve_server.app.json_lines import convert_handlers_of_libraries, is_in_json
from specserve_server.app.log_lines import log_to_stderr
from specserve_server.engine_process import frames
from specserve_server.engine_process.channel import Channel
from specserve_server.engine_process.further_servers import further_servers
from specserve_server.engine_process.host import EngineHost
from specserve_server.engine_process.launched import begin
from specserve_server.engine_process.loaded import loaded_frame
from specserve_server.engine_process.private_directory import engine_socket, private_directory, routes_socket
from specserve_server.engine_process.route_server import served_routes
from specserve_server.engine_process.sent_errors import sent
from specserve_server.engines.in_process import attach_in_process
from specserve_server.engines.load import announcements, load_engine
from specserve_server.traces.open_traces import open_traces

if TYPE_CHECKING:
    import socket

    from specserve.engine.async_engine import AsyncEngine
    from specserve_server.engines.attached import AttachedEngine

EXIT_SECONDS = 5.0
"""How long plugins may take for what they do at exit, once the server has ended."""


class Process:
    """Receives the first frame, and passes the others on to the host."""

    def __init__(self) -> None:
        self.started: asyncio.Future[frames.Start] = asyncio.get_running_loop().create_future()
        self.host: EngineHost | None = None

    def receive(self, frame: frames.FromServer) -> None:
        if isinstance(frame, frames.Start):
            self.started.set_result(frame)
        elif self.host is not None:
            self.host.receive(frame)
        else:
            assert isinstance(frame, frames.Stop), "nothing else is asked before the engine is loaded"

    async def run(self, end: socket.socket) -> None:
        channel: Channel[frames.FromServer] = await Channel.connect(end, frames.FromServer, self.receive)
        running = asyncio.ensure_future(self.load_and_serve(channel))
        await asyncio.wait([running, channel.lost], return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            exit_soon()
            running.cancel()
        await asyncio.gather(running, return_exceptions=channel.lost.done())
        channel.close()

    async def load_and_serve(self, channel: Channel[frames.FromServer]) -> None:
        start = await self.started
        sys.path[:] = start.search_path
        log_to_stderr(start.server.log_level, start.server.log_format)
        start_tracing(start.trace_topics, start.trace_form)
        loop = asyncio.get_running_loop()

        def tell(stage: str, done: int, total: int) -> None:
            loop.call_soon_threadsafe(channel.send, frames.Progress(stage, done, total))

        with ExitStack() as made:
            try:
                with private_directory():
                    pass  # an error before the load, and nothing is left where this process is killed while it loads
                engine = await load_engine(start.engine, tell)
                traces = open_traces(start.server)
                traces.listen(engine)
                attached = await attach_in_process(engine, start.server)
                directory = made.enter_context(private_directory())
            except SpecserveError as error:
                channel.send(frames.LoadFailed(sent(error)))
                return
            if is_in_json():
                convert_handlers_of_libraries()  # of those that were imported meanwhile
            loaded = loaded_frame(engine, announcements(engine), directory, tuple(attached.routes.paths))
            async with (
                served_routes(attached.routes, start.server, routes_socket(directory)),
                further_servers(engine_socket(directory), engine, attached, loaded),
            ):
                await self.serve(channel, engine, attached, loaded)
        await asyncio.to_thread(traces.close)

    async def serve(
        self, channel: Channel[frames.FromServer], engine: AsyncEngine, attached: AttachedEngine, loaded: frames.Loaded
    ) -> None:
        """The server that started this process, until it asks for the end."""
        self.host = EngineHost(channel, engine, attached, engine.stop)
        channel.send(loaded)
        try:
            await self.host.stopped
        finally:
            await self.host.leave()
            await engine.stop()
            await attached.routes.close()


def exit_soon() -> None:
    """Nobody is left to wait for what takes long."""
    if is_loading():
        exit_at_once(1)
    timer = threading.Timer(EXIT_SECONDS, os._exit, (1,))
    timer.daemon = True
    timer.start()


def main() -> int:
    end = begin()
    asyncio.run(serve(end))
    if is_loading():
        exit_at_once(1)
    return 0


async def serve(end: socket.socket) -> None:
    await Process().run(end)


if __name__ == "__main__":
    sys.exit(main())
