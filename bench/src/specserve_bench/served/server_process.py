"""`specserve` as a process: started as a user starts it, timed until it is ready, ended by SIGTERM.

It uses bytecode caches as an installed program does, also where PYTHONDONTWRITEBYTECODE is set.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple
from urllib.request import urlopen

if TYPE_CHECKING:
    from collections.abc import Iterator

READY = "specserve: ready on "
STOP_SECONDS = 20.0
LEFT_OUT = ("PYTHONDONTWRITEBYTECODE", "SPECSERVE_API_KEY")
"""Variables that a server is not given: it answers whoever started it."""


class Server(NamedTuple):
    """A server that became ready `seconds` after its start."""

    url: str
    seconds: float


class NotReadyError(RuntimeError):
    """The server ended before it was ready; the message ends with what it said."""


def command() -> list[str]:
    """The installed script next to this interpreter, or its entry point if there is none."""
    script = Path(sys.executable).with_name("specserve")
    if script.exists():
        return [str(script)]
    return [sys.executable, "-m", "specserve"]


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in LEFT_OUT}


@contextmanager
def server(*flags: str) -> Iterator[Server]:
    """`specserve serve --port 0`: ready, with /health answering 200, on entry; gone on exit."""
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [*command(), "serve", "--port", "0", *flags],
            stdout=subprocess.PIPE, stderr=log, text=True, env=environment(),
        )  # fmt: skip
        try:
            url = ready_url(process, log)
            with urlopen(f"{url}/health") as answer:
                assert answer.status == 200
            yield Server(url, time.perf_counter() - began)
        finally:
            stop(process)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Inside, SIGTERM ends this process as an error would: servers that it started are stopped."""

    def end(*_: object) -> None:
        sys.exit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    assert process.stdout is not None
    process.stdout.close()


def ready_url(process: subprocess.Popen[str], log: IO[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(READY):
            return line.removeprefix(READY).strip()
    code = process.wait()
    log.seek(0)
    last = (log.read().strip().splitlines() or ["it said nothing"])[-1]
    raise NotReadyError(f"specserve serve ended with exit code {code} before it was ready: {last}")
