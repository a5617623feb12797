"""An engine in a process of its own, stopped while another engine is measured.

Owns the process: started on first use, stopped (SIGSTOP) between jobs, since some engines busy-wait for work, and
restarted after a crash. Knows the messages of `workers.wire`, and no engine.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from benchmarks.peers.workers.wire import Job, Reply

REPLY_SECONDS = 900.0
EXIT_SECONDS = 10.0
EXCEPTION = re.compile(r"[\w.]*(Error|Exception): ")
INDIRECT_ERRORS = ("EngineDeadError", "Engine core initialization failed")
"""What vLLM's front end says when its engine process died; the cause is in the log."""


class CrashedError(Exception):
    """An engine died, failed or hung; the first line of its own message."""


class Program(NamedTuple):
    """How an engine's process is started."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    log: Path
    """Receives stderr."""


class EngineProcess:
    """An engine that serves jobs over pipes."""

    def __init__(self, program: Program, setup: Mapping[str, object]) -> None:
        self.program = program
        self.argument = json.dumps(setup)
        self.process: subprocess.Popen[str] | None = None
        self.load_error: CrashedError | None = None
        """Why it could not be loaded; loading is not tried again."""

    def throughput(self, job: Job) -> float:
        """Tokens per second from the first request to the last token. Raises CrashedError."""
        reply = self.answer(job)
        expected = len(job["prompts"]) * job["num_tokens"]
        if reply["num_tokens"] != expected:
            self.close()
            raise CrashedError(f"{reply['num_tokens']} tokens instead of {expected}")
        return reply["num_tokens"] / reply["seconds"]

    def answer(self, job: Mapping[str, object] | None) -> Reply:
        """The first reply to a job; with None, the next one. Raises CrashedError."""
        process = self.process or self.load()
        with self.closed_on_crash(process), resumed(process):
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.write(json.dumps(job) + "\n")
                process.stdin.flush()
            return self.reply(process)

    def load(self) -> subprocess.Popen[str]:
        if self.load_error:
            raise self.load_error
        self.process = start(self.program, self.argument)
        try:
            with self.closed_on_crash(self.process), resumed(self.process):
                self.reply(self.process)
        except CrashedError as error:
            self.load_error = error
            raise
        return self.process

    def reply(self, process: subprocess.Popen[str]) -> Reply:
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], REPLY_SECONDS)
        if not readable:
            raise CrashedError(f"no reply within {REPLY_SECONDS:.0f} s")
        line = process.stdout.readline()
        reply: Reply = json.loads(line) if line else {"error": exit_reason(process)}
        if error := reply.get("error"):
            indirect = not line or any(words in error for words in INDIRECT_ERRORS)
            raise CrashedError((indirect and last_error(self.program.log)) or error)
        return reply

    @contextmanager
    def closed_on_crash(self, process: subprocess.Popen[str]) -> Iterator[None]:
        try:
            yield
        except CrashedError:
            self.close()
            raise

    def close(self) -> None:
        if self.process:
            shut_down(self.process)
        self.process = None


def start(program: Program, *arguments: str, pipes: bool = True) -> subprocess.Popen[str]:
    """In a process group of its own, which its children join."""
    program.log.parent.mkdir(parents=True, exist_ok=True)
    with program.log.open("w", encoding="utf-8") as log:
        return subprocess.Popen(
            [*program.argv, *arguments], env=program.env,
            stdin=subprocess.PIPE if pipes else subprocess.DEVNULL, stdout=subprocess.PIPE if pipes else log,
            stderr=log, text=True, start_new_session=True,
        )  # fmt: skip


@contextmanager
def resumed(process: subprocess.Popen[str]) -> Iterator[None]:
    """The process group runs inside and is stopped outside of the context."""
    signal_group(process, signal.SIGCONT)
    try:
        yield
    finally:
        signal_group(process, signal.SIGSTOP)


def signal_group(process: subprocess.Popen[str], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def shut_down(process: subprocess.Popen[str]) -> None:
    """Close stdin, then SIGTERM, then SIGKILL: only an orderly exit frees shared memory."""
    signal_group(process, signal.SIGCONT)
    if process.stdin is not None:
        with suppress(BrokenPipeError):
            process.stdin.close()
        wait_for_exit(process)
    signal_group(process, signal.SIGTERM)
    wait_for_exit(process)
    signal_group(process, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def wait_for_exit(process: subprocess.Popen[str]) -> bool:
    try:
        process.wait(EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def exit_reason(process: subprocess.Popen[str]) -> str:
    return f"exited with code {process.returncode}" if wait_for_exit(process) else "closed its output"


def last_error(log: Path) -> str:
    """The last exception in the log that is not one of INDIRECT_ERRORS; empty if there is none."""
    found = ""
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        message = line.partition(" ERROR ")[2].partition("] ")[2] or line
        if EXCEPTION.match(message) and not any(words in message for words in INDIRECT_ERRORS):
            found = message.strip()
    return found
