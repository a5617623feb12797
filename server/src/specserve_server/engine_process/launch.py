"""Starts the engine's process, and tells how it ended."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from asyncio.subprocess import Process

END_SECONDS = 10.0
"""How long a process may take to end before it is killed: plugins may write files at the end."""


class LaunchedProcess(Protocol):
    async def wait(self) -> str:
        """How it ended: "was ended by SIGKILL". It ends by itself soon, or is killed."""
        ...

    async def end(self) -> None:
        """It was asked to end: wait until it has, or kill it."""
        ...


class EngineProcess:
    """Implements `LaunchedProcess`."""

    def __init__(self, process: Process) -> None:
        self.process = process

    async def wait(self) -> str:
        await self.end()
        code = self.process.returncode
        assert code is not None, "it has ended"
        return (
            f"ended with exit code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}{advice(code)}"
        )

    async def end(self) -> None:
        try:
            async with asyncio.timeout(END_SECONDS):
                await self.process.wait()
        except TimeoutError:
            self.kill()
            await self.process.wait()

    def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()


def advice(code: int) -> str:
    return "; the system does so where memory is short" if code == -signal.SIGKILL else ""


class Launched(NamedTuple):
    process: EngineProcess
    end: socket.socket
    """The server's end of the socket between them."""


async def launch() -> Launched:
    """Without a shell and without the working directory on the path of modules."""
    ours, theirs = socket.socketpair()
    with theirs:
        command = (sys.executable, "-P", "-m", "specserve_server.engine_process", str(theirs.fileno()))
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, pass_fds=(theirs.fileno(),)
        )
    return Launched(EngineProcess(process), ours)
