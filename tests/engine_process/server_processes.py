"""`specserve serve` as a user starts it, with the engine in a process of its own or in the server's."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 60.0


class Server:
    """A started server."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process, self.log = process, log
        self.url = ""

    def wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert "ready on " in line, self.log.read_text()
        self.url = line.split()[-1].strip('"}')

    @property
    def engine_pid(self) -> int:
        (pid,) = self.children("engine_process")
        return pid

    @property
    def http_pids(self) -> set[int]:
        """Of the processes that listen: the server's first one, and further ones."""
        return {self.process.pid, *self.children("http_process")}

    def children(self, module: str) -> list[int]:
        pids = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(pid) for pid in pids if f"specserve_server.{module}" in command_of(int(pid))]

    def wait(self) -> int:
        return self.process.wait(PATIENCE)


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def is_running(pid: int) -> bool:
    """A process that has ended and that nobody has waited for is not running."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while is_running(pid):
        assert time.monotonic() < deadline, f"{command_of(pid)} still runs"
        time.sleep(0.01)


@contextmanager
def running(model: Path, directory: Path, *flags: str) -> Iterator[Server]:
    log = directory / "server.log"
    plugins = ("--plugin", "ngram", "--plugin", "lora", "--plugin", "grammar", "--set", f"lora.root={directory}")
    command = [sys.executable, "-m", "specserve", "serve", str(model), "--port", "0", "--threads", "1"]
    with log.open("w") as file:
        process = subprocess.Popen([*command, *plugins, *flags], stdout=subprocess.PIPE, stderr=file, text=True)
    server = Server(process, log)
    try:
        server.wait_until_ready()
        yield server
        process.send_signal(signal.SIGTERM)
        assert server.wait() == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
