"""A server measured from outside: what its processes have of the system, and what its log says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server_process import ServerProcess


class Resources(NamedTuple):
    """Of all processes together."""

    processes: int
    memory_bytes: int
    threads: int
    descriptors: tuple[str, ...]


def processes_of(server: ServerProcess) -> list[int]:
    """Its own, and the engine's where it has one."""
    return [server.process.pid, *server.engine_pids]


def resources_of(pids: Sequence[int]) -> Resources:
    memory, threads, descriptors = 0, 0, list[str]()
    for folder in (Path(f"/proc/{pid}") for pid in pids):
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        memory += int(status["VmRSS"].split()[0]) * 1024
        threads += int(status["Threads"])
        descriptors += open_files(folder / "fd")
    return Resources(len(pids), memory, threads, tuple(sorted(descriptors)))


def open_files(folder: Path) -> list[str]:
    found = []
    for file in folder.iterdir():
        try:
            found.append(str(file.readlink()))
        except FileNotFoundError:  # closed meanwhile
            continue
    return found


def errors_in(log: Path) -> list[str]:
    """Lines at level ERROR or CRITICAL, and tracebacks."""
    marks = (" ERROR ", " CRITICAL ", "Traceback ")
    return [line for line in log.read_text(errors="replace").splitlines() if any(mark in line for mark in marks)]
