"""Engines behind HTTP: a server process, and clients in another process that stream from it.

Owns how vLLM's server is started and awaited; specserve's own comes from `specserve_bench.served`.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from benchmarks.lib.http_clients import ClientError, completion_body, streaming_throughput
from benchmarks.peers.engine_process import CrashedError, Program, last_error, resumed, shut_down, start
from benchmarks.peers.workers.local_server import free_port, is_healthy
from specserve_bench.served.server_process import server

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

    from benchmarks.peers.workers.wire import Job

READY_SECONDS = 600.0


class SpecserveServer:
    """`specserve serve`. It is not stopped between jobs: idle, it uses no CPU."""

    def __init__(self, flags: Sequence[str]) -> None:
        self.flags = tuple(flags)
        self.stack = ExitStack()
        self.url = ""

    def throughput(self, job: Job) -> float:
        try:
            self.url = self.url or self.stack.enter_context(server(*self.flags)).url
            return throughput_of_clients(self.url, job)
        except (CrashedError, RuntimeError) as error:
            self.close()
            raise CrashedError(str(error)) from error

    def close(self) -> None:
        self.stack.close()
        self.url = ""


class VllmServer:
    """`vllm serve`, stopped (SIGSTOP) between jobs."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.process: subprocess.Popen[str] | None = None
        self.load_error: CrashedError | None = None
        self.url = ""

    def throughput(self, job: Job) -> float:
        process = self.process or self.load()
        try:
            with resumed(process):
                return throughput_of_clients(self.url, job)
        except CrashedError as error:
            self.close()
            raise CrashedError(last_error(self.program.log) or str(error)) from error

    def load(self) -> subprocess.Popen[str]:
        if self.load_error:
            raise self.load_error
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.process = start(self.program, "--port", str(port), pipes=False)
        deadline = time.monotonic() + READY_SECONDS
        while not is_healthy(self.url):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.close()
                self.load_error = CrashedError(last_error(self.program.log) or "the server did not become ready")
                raise self.load_error
            time.sleep(0.5)
        return self.process

    def close(self) -> None:
        if self.process:
            shut_down(self.process)
        self.process = None


def throughput_of_clients(url: str, job: Job) -> float:
    """Tokens per second of one streaming client per prompt. Raises CrashedError."""
    bodies = [completion_body(prompt, job["num_tokens"], job["temperature"]) for prompt in job["prompts"]]
    try:
        return streaming_throughput(url, bodies)
    except ClientError as error:
        raise CrashedError(str(error).splitlines()[-1]) from error
