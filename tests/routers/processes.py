"""Servers of the demo model, one thread each, and a router before them: as processes that end with the block."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

from install import BUILD

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

READY = "specserve: ready on "
LOGS = BUILD / "logs"
FLAGS = ("--threads", "1", "--kv-memory", "64M")
COMMANDS = {"smg": ("launch",), "vllm-router": ()}
START_SECONDS = 60.0


class ServerProcess:
    def __init__(self, name: str, flags: Sequence[str]) -> None:
        self.log = (LOGS / f"{name}.log").open("w")
        command = [sys.executable, "-m", "specserve", "serve", "demo", "--port", "0", *FLAGS, *flags]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True, env=environment)
        assert self.process.stdout is not None
        line = next(line for line in self.process.stdout if line.startswith(READY))
        self.url = line.removeprefix(READY).strip()

    def metric(self, name: str) -> float:
        """The sum of the series of this name."""
        with urlopen(f"{self.url}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.partition("{")[0] == name)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.log.close()
        return code


@contextmanager
def serving(count: int, *flags: str) -> Iterator[list[ServerProcess]]:
    """These servers; those that still run are ended."""
    LOGS.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        servers = []
        for i in range(count):
            servers.append(ServerProcess(f"server{i}", flags))
            stack.callback(end_if_running, servers[-1])
        yield servers


def end_if_running(server: ServerProcess) -> None:
    if server.process.poll() is None:
        server.end()


@contextmanager
def routing(router: str, servers: Sequence[ServerProcess], *flags: str) -> Iterator[str]:
    """The router's URL, once it is ready for all of the servers."""
    port, metrics = free_port(), free_port()
    command = [str(BUILD / router / "bin" / router), *COMMANDS[router], "--worker-urls", *(s.url for s in servers)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(metrics), *flags]
    with (LOGS / f"{router}.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            wait_until_it_answers(f"http://127.0.0.1:{port}/v1/models", process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_until_it_answers(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        assert process.poll() is None, "the router ended: its log is in build/routers/logs"
        try:
            with urlopen(url, timeout=5) as answer:
                if b"demo" in answer.read():
                    return
        except OSError:
            pass
        assert time.monotonic() < until, f"{url} does not answer"
        time.sleep(0.2)


def free_port() -> int:
    with socket.socket() as there:
        there.bind(("127.0.0.1", 0))
        return int(there.getsockname()[1])


def installed(router: str) -> bool:
    return Path(BUILD / router / "bin" / router).exists()
