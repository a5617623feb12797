"""A server as a process: started, measured from outside, ended by SIGTERM."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import NamedTuple

READY = "specserve: ready on "
TESTS = Path(__file__).parents[1]
STOP_SECONDS = 60


class Resources(NamedTuple):
    """What the operating system knows of the process."""

    memory_bytes: int
    threads: int
    descriptors: tuple[str, ...]


class ServerProcess:
    """`with ServerProcess(command, log) as server`: ready on entry. `log` gets standard error."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.log = log
        path = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, env=os.environ | {"PYTHONPATH": path}
            )
        self.url = ""

    def __enter__(self) -> ServerProcess:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(READY):
                self.url = line.removeprefix(READY).strip()
                return self
        code = self.process.wait()
        raise RuntimeError(f"the server ended with exit code {code} before it was ready:\n{self.log.read_text()}")

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def stop(self) -> int | None:
        """The exit code after SIGTERM; None where it did not end."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            return None

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def resources(self) -> Resources:
        folder = Path(f"/proc/{self.process.pid}")
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        return Resources(
            int(status["VmRSS"].split()[0]) * 1024, int(status["Threads"]), tuple(open_files(folder / "fd"))
        )

    def errors(self) -> list[str]:
        """Lines of the log at level ERROR or CRITICAL, and tracebacks."""
        marks = (" ERROR ", " CRITICAL ", "Traceback ")
        return [
            line for line in self.log.read_text(errors="replace").splitlines() if any(mark in line for mark in marks)
        ]


def open_files(folder: Path) -> list[str]:
    found = []
    for file in folder.iterdir():
        try:
            found.append(str(file.readlink()))
        except FileNotFoundError:  # closed meanwhile
            continue
    return sorted(found)
