"""A server as a user starts it: a process that becomes ready and is ended, in one of two forms.

All tests that start `specserve serve` in a process of its own do it here. Standard library only: some of them run where
pytest is not.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from process_table import PATIENCE, command_line, descendants, wait_until_gone

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Self

FORMS = ("no-engine-process", "engine-process")
"""Where the engine runs: in the server's process, or in one of its own. With -- before it, the server's flag."""
READY = re.compile(r'ready on ([^\s"]+)')
TESTS = Path(__file__).parent
STOP_SECONDS = 60.0
MOST_LOG = 4000
"""Characters of a log in a message."""
S = TypeVar("S", bound="ServerProcess")


def serve_command(model: Path | str, *flags: str, module: str = "specserve") -> list[str]:
    """`specserve serve` on a free port. `module`: what is run in place of specserve."""
    return [sys.executable, "-m", module, "serve", str(model), "--port", "0", *flags]


def path_with_tests() -> dict[str, str]:
    """The variable by which a process finds the modules of this folder."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))}


class NotReadyError(Exception):
    """The process ended before it was ready; the message has its log."""


class ServerProcess:
    """Started when it is made, in a session of its own, which ends with it. `log` gets standard error. A `with` block
    begins when it is ready, and behind the block nothing of it runs."""

    def __init__(
        self, command: Sequence[str], log: Path, *, cwd: Path | None = None, variables: Mapping[str, str] | None = None
    ) -> None:
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
                cwd=cwd,
                env=os.environ | (variables or {}),
            )
        self.log, self.url = log, ""

    def __enter__(self) -> Self:
        try:
            self.wait_until_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_until_ready(self) -> None:
        """Raises NotReadyError where it ends before."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := READY.search(line):
                self.url = found[1]
                return
        raise NotReadyError(f"it ended with exit code {self.wait()} before it was ready:\n{self.end_of_log()}")

    @property
    def engine_pid(self) -> int:
        """Of the engine's process; ValueError where it has none."""
        (pid,) = self.engine_pids
        return pid

    @property
    def engine_pids(self) -> list[int]:
        """One or none."""
        return self.descendants_with("specserve_server.engine_process")

    @property
    def http_pids(self) -> set[int]:
        """Of the processes that listen: the server's first one, and further ones."""
        return {self.process.pid, *self.descendants_with("specserve_server.http_process")}

    def descendants_with(self, words: str) -> list[int]:
        """The processes below it whose command lines have these words."""
        return [pid for pid in descendants(self.process.pid) if words in command_line(pid)]

    def wait(self) -> int:
        """The exit code."""
        return self.process.wait(STOP_SECONDS)

    def stop(self, number: int = signal.SIGTERM) -> int | None:
        """The exit code after this signal, or that of its own end before; None where it does not end."""
        self.process.send_signal(number)
        try:
            return self.wait()
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        """Kills what still runs."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def lines_with(self, words: str, count: int = 1) -> list[str]:
        """Of the log, as soon as so many have these words: what a client or a signal brings about is logged somewhat
        later than the client sees it."""
        until = time.monotonic() + PATIENCE
        while len(found := [line for line in self.log.read_text().splitlines() if words in line]) < count:
            assert time.monotonic() < until, f"not logged {count} times: {words}\n{self.end_of_log()}"
            time.sleep(0.01)
        return found

    def end_of_log(self) -> str:
        return self.log.read_text(errors="replace")[-MOST_LOG:]


@contextmanager
def stopped_well(server: S) -> Iterator[S]:
    """Ready when the block begins. Behind a block that raises nothing it has ended as SIGTERM asks, with all of its
    processes."""
    with server:
        yield server
        below = descendants(server.process.pid)
        code = server.stop()
        assert code == 0, f"it ended with exit code {code}:\n{server.end_of_log()}"
        wait_until_gone(below)
