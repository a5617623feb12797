"""`specserve serve` as a process: the demo model with ngram, lora and grammar, an API key and a free port.

Standard library only. The clients get the address, the key and the names of the models as environment variables.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
ADAPTER = ROOT / "demo" / "src" / "specserve_demo" / "adapters" / "docstrings"
KEY = "sk-of-the-client-tests"
READY = "specserve: ready on "
STOP_SECONDS = 20.0
FLAGS = (
    "--api-key", KEY, "--plugin", "ngram", "--plugin", "grammar",
    "--plugin", "lora", "--set", f"lora.adapters.docstrings={ADAPTER}",
)  # fmt: skip


class ServerProcess:
    """Made by `serving`. `exit_code` is known once the block has ended."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.exit_code: int | None = None

    @property
    def variables(self) -> dict[str, str]:
        return {"SPECSERVE_URL": self.url, "SPECSERVE_API_KEY": KEY}

    def running_requests(self) -> int:
        """Requests that still run or wait five seconds after the last client has left."""
        deadline = time.monotonic() + 5
        while (load := self.get("/load")["server_load"]) and time.monotonic() < deadline:
            time.sleep(0.1)
        return int(load)

    def get(self, path: str) -> Any:
        with urlopen(Request(self.url + path, headers={"Authorization": f"Bearer {KEY}"}), timeout=10) as answer:
            return json.load(answer)


@contextmanager
def serving(log: Path) -> Iterator[ServerProcess]:
    """Serve until the block ends; then SIGTERM, and SIGKILL where it does not help."""
    with log.open("w") as file:
        command = [sys.executable, "-m", "specserve", "serve", "demo", "--port", "0", *FLAGS]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True)
        try:
            server = ServerProcess(ready_url(process, log))
            yield server
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        server.exit_code = process.returncode


def ready_url(process: subprocess.Popen[str], log: Path) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(READY):
            return line.removeprefix(READY).strip()
    sys.exit(f"== specserve serve ended with exit code {process.wait()} before it was ready: {log}")
