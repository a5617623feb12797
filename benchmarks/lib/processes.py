"""`specserve` as a process: started as a user starts it, timed until it is ready, ended by SIGTERM.

It uses bytecode caches as an installed program does, also where PYTHONDONTWRITEBYTECODE is set.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.request import urlopen

if TYPE_CHECKING:
    from collections.abc import Iterator

READY = "specserve: ready on "
STOP_SECONDS = 20.0


class Server(NamedTuple):
    """A server that became ready `seconds` after its start."""

    url: str
    seconds: float


def command() -> list[str]:
    """The installed script next to this interpreter, or its entry point if there is none."""
    script = Path(sys.executable).with_name("specserve")
    if script.exists():
        return [str(script)]
    return [sys.executable, "-m", "specserve"]


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


@contextmanager
def server(*flags: str) -> Iterator[Server]:
    """`specserve serve --port 0`: ready, with /health answering 200, on entry; gone on exit."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [*command(), "serve", "--port", "0", *flags],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment(),
    )  # fmt: skip
    try:
        url = ready_url(process)
        with urlopen(f"{url}/health") as answer:
            assert answer.status == 200
        yield Server(url, time.perf_counter() - began)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ready_url(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(READY):
            return line.removeprefix(READY).strip()
    raise RuntimeError(f"specserve serve ended with exit code {process.wait()} before it was ready.")
