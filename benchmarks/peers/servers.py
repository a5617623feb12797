"""Contenders behind HTTP: a server, and clients in another process that stream from it.

Owns the request bodies and how vLLM's server is started; specserve's own comes from `benchmarks.lib.processes`.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.request import urlopen

from benchmarks.lib.processes import server
from benchmarks.peers.engine_process import CrashedError, Program, awake, end, last_error, start

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.peers.workers.wire import Job

READY_SECONDS = 600.0


class OwnServer:
    """`specserve serve`. Idle, it sleeps by itself."""

    def __init__(self, flags: Sequence[str]) -> None:
        self.flags = tuple(flags)
        self.stack = ExitStack()
        self.url = ""

    def rate(self, job: Job) -> float:
        try:
            self.url = self.url or self.stack.enter_context(server(*self.flags)).url
            return rate_of_clients(self.url, job)
        except (CrashedError, RuntimeError) as error:
            self.close()
            raise CrashedError(str(error)) from error

    def close(self) -> None:
        self.stack.close()
        self.url = ""


class VllmServer:
    """`vllm serve`, stopped between jobs as a worker is."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.process: subprocess.Popen[str] | None = None
        self.hopeless: CrashedError | None = None
        self.url = ""

    def rate(self, job: Job) -> float:
        process = self.process or self.load()
        try:
            with awake(process):
                return rate_of_clients(self.url, job)
        except CrashedError as error:
            self.close()
            raise CrashedError(last_error(self.program.log) or str(error)) from error

    def load(self) -> subprocess.Popen[str]:
        if self.hopeless:
            raise self.hopeless
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.process = start(self.program, "--port", str(port), answers=False)
        until = time.monotonic() + READY_SECONDS
        while not answers(f"{self.url}/health"):
            if self.process.poll() is not None or time.monotonic() > until:
                self.close()
                self.hopeless = CrashedError(last_error(self.program.log) or "the server did not become ready")
                raise self.hopeless
            time.sleep(0.5)
        return self.process

    def close(self) -> None:
        if self.process:
            end(self.process)
        self.process = None


def rate_of_clients(url: str, job: Job) -> float:
    """Tokens per second of one streaming client per prompt. Raises CrashedError."""
    clients = subprocess.run(
        [sys.executable, "-m", "benchmarks.lib.http_clients", url],
        input=json.dumps(bodies(job)),
        capture_output=True,
        text=True,
        check=False,
    )
    if clients.returncode:
        raise CrashedError(clients.stderr.strip().splitlines()[-1])
    answer = json.loads(clients.stdout)
    wanted = len(job["prompts"]) * job["num_tokens"]
    if answer["num_tokens"] != wanted:
        raise CrashedError(f"{answer['num_tokens']} tokens instead of {wanted}")
    rate: float = answer["num_tokens"] / answer["seconds"]
    return rate


def bodies(job: Job) -> list[dict[str, Any]]:
    common = {
        "max_tokens": job["num_tokens"],
        "temperature": job["temperature"],
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return [{"prompt": prompt, **common} for prompt in job["prompts"]]


def answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
