"""Starts a process of this server, and tells how it ended."""

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
        """How it ended: "its process was ended by SIGKILL". It ends by itself soon, or is killed."""
        ...

    async def end(self) -> None:
        """It was asked to end: wait until it has, or kill it."""
        ...


class ChildProcess:
    """Implements `LaunchedProcess`."""

    def __init__(self, process: Process) -> None:
        self.process = process

    @property
    def pid(self) -> int:
        return self.process.pid

    async def wait(self) -> str:
        await self.end()
        return f"its process {await self.ended()}"

    async def ended(self) -> str:
        """Wait for as long as it runs; how it ended: "was ended by SIGKILL"."""
        code = await self.process.wait()
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
    process: ChildProcess
    end: socket.socket
    """The server's end of the socket between them. A process whose server has closed it ends."""


async def launch(module: str) -> Launched:
    """`python -m module FD`, without a shell and without the working directory on the path of modules."""
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            command = (sys.executable, "-P", "-m", module, str(theirs.fileno()))
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, pass_fds=(theirs.fileno(),)
            )
    except BaseException:
        ours.close()
        raise
    return Launched(ChildProcess(process), ours)
