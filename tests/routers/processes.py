"""Servers of the demo model, one thread each, and a router before them: as processes that end with the block."""

from __future__ import annotations

import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

from install import BUILD

from server_process import ServerProcess, serve_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LOGS = BUILD / "logs"
FLAGS = ("--threads", "1", "--kv-memory", "64M")
COMMANDS = {"smg": ("launch",), "vllm-router": ()}
START_SECONDS = 60.0


class RoutedServer(ServerProcess):
    def metric(self, name: str) -> float:
        """The sum of the series of this name."""
        with urlopen(f"{self.url}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.partition("{")[0] == name)


@contextmanager
def serving(count: int, *flags: str) -> Iterator[list[RoutedServer]]:
    """These servers; those that still run behind the block are ended."""
    LOGS.mkdir(parents=True, exist_ok=True)
    command, variables = serve_command("demo", *FLAGS, *flags), {"OMP_NUM_THREADS": "1"}
    with ExitStack() as stack:
        servers = [RoutedServer(command, LOGS / f"server{i}.log", variables=variables) for i in range(count)]
        for server in servers:
            stack.enter_context(server)
            stack.callback(server.stop)
        yield servers


@contextmanager
def routing(router: str, servers: Sequence[RoutedServer], *flags: str) -> Iterator[str]:
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
