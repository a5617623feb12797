"""A contender's engine in a process of its own, which sleeps while another works.

Owns the process: started when it is first asked, stopped (SIGSTOP) between jobs, since some engines wait for
work in a busy loop, started afresh after a crash. Knows the messages of `workers.wire`, and no engine.
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

    from benchmarks.peers.workers.wire import Answer, Job, Setup

ANSWER_SECONDS = 900.0
END_SECONDS = 10.0
EXCEPTION = re.compile(r"[\w.]*(Error|Exception): ")
DIED_ELSEWHERE = ("EngineDeadError", "Engine core initialization failed")
"""What vLLM's front says when its engine died; why is in the log."""


class CrashedError(Exception):
    """A contender died, failed or hung; the first line of what it said about it."""


class Program(NamedTuple):
    """How a contender's process is started."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    log: Path
    """What it says on stderr."""


class Worker:
    """An engine that serves jobs."""

    def __init__(self, program: Program, setup: Setup) -> None:
        self.program = program
        self.argument = json.dumps(setup)
        self.process: subprocess.Popen[str] | None = None
        self.hopeless: CrashedError | None = None
        """It could not even be loaded: that is not tried again."""

    def rate(self, job: Job) -> float:
        """Tokens per second from the first request to the last token. Raises CrashedError."""
        process = self.process or self.load()
        with self.ended_if_crashed(process), awake(process):
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.write(json.dumps(job) + "\n")
                process.stdin.flush()
            answer = self.answer(process)
            wanted = len(job["prompts"]) * job["num_tokens"]
            if answer["num_tokens"] != wanted:
                raise CrashedError(f"{answer['num_tokens']} tokens instead of {wanted}")
        return answer["num_tokens"] / answer["seconds"]

    def load(self) -> subprocess.Popen[str]:
        if self.hopeless:
            raise self.hopeless
        self.process = start(self.program, self.argument)
        try:
            with self.ended_if_crashed(self.process), awake(self.process):
                self.answer(self.process)
        except CrashedError as error:
            self.hopeless = error
            raise
        return self.process

    def answer(self, process: subprocess.Popen[str]) -> Answer:
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], ANSWER_SECONDS)
        if not readable:
            raise CrashedError(f"no answer within {ANSWER_SECONDS:.0f} s")
        line = process.stdout.readline()
        answer: Answer = json.loads(line) if line else {"error": ended_how(process)}
        if error := answer.get("error"):
            elsewhere = not line or any(words in error for words in DIED_ELSEWHERE)
            raise CrashedError((elsewhere and last_error(self.program.log)) or error)
        return answer

    @contextmanager
    def ended_if_crashed(self, process: subprocess.Popen[str]) -> Iterator[None]:
        try:
            yield
        except CrashedError:
            self.close()
            raise

    def close(self) -> None:
        if self.process:
            end(self.process)
        self.process = None


def start(program: Program, *arguments: str, answers: bool = True) -> subprocess.Popen[str]:
    """In a process group of its own, which holds its children too. Without answers there are no pipes."""
    program.log.parent.mkdir(parents=True, exist_ok=True)
    with program.log.open("w", encoding="utf-8") as log:
        return subprocess.Popen(
            [*program.argv, *arguments], env=program.env,
            stdin=subprocess.PIPE if answers else subprocess.DEVNULL, stdout=subprocess.PIPE if answers else log,
            stderr=log, text=True, start_new_session=True,
        )  # fmt: skip


@contextmanager
def awake(process: subprocess.Popen[str]) -> Iterator[None]:
    """Its group runs inside, and is stopped outside. Ended in between: nothing to stop."""
    tell(process, signal.SIGCONT)
    try:
        yield
    finally:
        tell(process, signal.SIGSTOP)


def tell(process: subprocess.Popen[str], what: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, what)


def end(process: subprocess.Popen[str]) -> None:
    """Let it end, ask its group to, make it: only the gentle way frees its shared memory."""
    tell(process, signal.SIGCONT)
    if process.stdin is not None:
        with suppress(BrokenPipeError):
            process.stdin.close()
        ended(process)
    tell(process, signal.SIGTERM)
    ended(process)
    tell(process, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def ended(process: subprocess.Popen[str]) -> bool:
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def ended_how(process: subprocess.Popen[str]) -> str:
    return f"ended with exit code {process.returncode}" if ended(process) else "closed its output"


def last_error(log: Path) -> str:
    """The last exception that the log names, less those that only say that another process died; empty: none."""
    found = ""
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.partition(" ERROR ")[2].partition("] ")[2] or line
        if EXCEPTION.match(words) and not any(known in words for known in DIED_ELSEWHERE):
            found = words.strip()
    return found
