"""The two things that are compared, as processes: `specserve-ray up` with two replicas, and `specserve serve`.

Owns their configuration, their start and their end. What they run in is found in /proc.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BIN = Path(sys.executable).parent
DEMO = Path(__file__).parents[2] / "demo" / "src" / "specserve_demo"
KEY = "sk-of-the-cluster-tests"
READY = "specserve: ready on "
START_SECONDS, STOP_SECONDS = 120.0, 30.0
ENGINE_TABLES = f"""
[engine]
model = "demo"
threads = 1
max_num_seqs = 64
plugins = ["ngram", "lora", "grammar"]
[plugins.lora]
root = "{DEMO / "adapters"}"
[server]
port = 0
api_key = "{KEY}"
max_body_bytes = 1000000
"""
HEALTH_CHECK_SECONDS = 1.0
RAY_TABLE = """
[ray]
replicas = {replicas}
cpus = 0.5
health_check_period = 1.0
stats_period = 0.2
address = {address}
"""


class Served(NamedTuple):
    url: str
    process: subprocess.Popen[str]
    log: Path

    @property
    def address(self) -> str:
        """Of the Ray cluster."""
        found = re.search(r"the cluster is at (\S+),", self.log.read_text())
        assert found is not None
        return found[1]

    def pids(self, words: str) -> list[int]:
        """Of the processes below it whose command lines have these words."""
        return [pid for pid in descendants(self.process.pid) if words in command_line(pid)]

    @property
    def replica_pids(self) -> list[int]:
        return self.pids("ServeReplica:specserve:replicas")


@contextmanager
def ray_cluster(folder: Path) -> Iterator[Served]:
    config = folder / "cluster.toml"
    config.write_text(ENGINE_TABLES + RAY_TABLE.format(replicas=2, address='"local"'))
    with running([str(BIN / "specserve-ray"), "up", str(config)], folder / "cluster.log") as served:
        yield served


@contextmanager
def plain_server(folder: Path) -> Iterator[Served]:
    config = folder / "plain.toml"
    config.write_text(ENGINE_TABLES)
    command = [sys.executable, "-m", "specserve", "serve", "--config", str(config)]
    with running(command, folder / "plain.log") as served:
        yield served


@contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[Served]:
    """Ready when it yields, ended by SIGTERM. Its end is checked: code 0, and nothing is left of it."""
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True)
        try:
            yield Served(ready_url(process, log), process, log)
            below = descendants(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                code = process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
    assert code == 0, log.read_text()
    wait_until_gone(below)


def ready_url(process: subprocess.Popen[str], log: Path) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(READY):
            return line.removeprefix(READY).strip()
    raise AssertionError(f"it ended with exit code {process.wait()} before it was ready: {log.read_text()}")


def wait_until_gone(pids: Sequence[int]) -> None:
    until = time.monotonic() + STOP_SECONDS
    while left := [pid for pid in pids if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < until, [command_line(pid) for pid in left]
        time.sleep(0.1)


def descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended meanwhile
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
