"""Values against schemas, in a process of their own, so that no schema harms the server.

Safe to call from any thread; one value after the other. Imported only where the option `unsupported` asks for it.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
import weakref
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

import jsonschema_rs

from specserve_grammar.errors import ValidationError
from specserve_grammar.schema_checks import escaped

if TYPE_CHECKING:
    from collections.abc import Sequence

WORKER = Path(__file__).with_name("validation_worker.py")
CPU_SECONDS = 2.0
"""For one value."""
WAIT_SECONDS = 20.0
"""For a worker that gets no time, on a machine that is busy, and for the answers before."""
OPTIONS = jsonschema_rs.RegexOptions()
Steps: TypeAlias = "Sequence[str | int]"
"""Of a JSON pointer."""


class Validator:
    """`seconds`: of the CPU, for one value."""

    def __init__(self, seconds: float = CPU_SECONDS) -> None:
        self.seconds = seconds
        self.lock = Lock()
        self.workers: list[subprocess.Popen[bytes]] = []
        """The one that runs."""
        weakref.finalize(self, end_all, self.workers)

    def check_schema(self, schema: str) -> None:
        """Raises ValueError for one by which nothing can be validated."""
        try:
            jsonschema_rs.validator_for(json.loads(schema), offline=True, pattern_options=OPTIONS)
        except ValueError as error:
            path: Steps = getattr(error, "instance_path", ())
            raise ValueError(at(path, str(error).split("\n")[0])) from None

    def errors(self, schema: str, value: str) -> list[str]:
        """Why the value does not satisfy the schema; empty where it does. Both are JSON. Raises ValidationError."""
        line = json.dumps({"schema": schema, "value": value}).encode() + b"\n"
        if not self.lock.acquire(timeout=WAIT_SECONDS):
            raise ValidationError("other answers take too long")
        try:
            answer = self.answer_to(line) or self.answer_to(line)
        finally:
            self.lock.release()
        if answer is None:
            raise ValidationError("the process that validates ended twice")
        if "failure" in answer:
            raise ValidationError(answer["failure"])
        return [described(*error) for error in answer["errors"]]

    def answer_to(self, line: bytes) -> dict[str, Any] | None:
        """The worker's; one that has ended is replaced. None where it ends meanwhile, for whatever reason."""
        if not self.workers or self.workers[0].poll() is not None:
            end_all(self.workers)
            try:
                self.workers.append(start_worker(self.seconds))
            except OSError as error:
                return {"failure": f"the process that validates cannot be started: {error}"}
        worker = self.workers[0]
        try:
            answer: dict[str, Any] = json.loads(ask(worker, line))
        except (OSError, ValueError) as error:
            end_all(self.workers)
            if worker.returncode == -signal.SIGPROF:
                return {"failure": f"it took more than {self.seconds:g} seconds"}
            return {"failure": "the machine is too busy"} if isinstance(error, TimeoutError) else None
        return answer


def described(message: str, path: Steps, schema_path: Steps) -> str:
    """`/tags: [1,1] has non-unique elements (uniqueItems at /properties/tags/uniqueItems)`."""
    keyword = schema_path[-1] if schema_path else "false"
    return at(path, f"{message} ({keyword} at {pointer(schema_path)})")


def at(path: Steps, text: str) -> str:
    return f"{pointer(path)}: {text}" if path else text


def pointer(path: Steps) -> str:
    return "".join(f"/{escaped(str(part))}" for part in path)


def start_worker(seconds: float) -> subprocess.Popen[bytes]:
    """In a session of its own, which Ctrl-C does not reach; it ends with its standard input."""
    command = [sys.executable, "-P", str(WORKER), str(seconds)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )


def ask(worker: subprocess.Popen[bytes], line: bytes) -> bytes:
    """The worker's next line. Raises OSError where it has ended, or does not answer."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(line)
    worker.stdin.flush()
    deadline, answer = time.monotonic() + WAIT_SECONDS, b""
    with selectors.PollSelector() as output:  # takes no file descriptor, and has no highest one
        output.register(worker.stdout, selectors.EVENT_READ)
        while not answer.endswith(b"\n"):
            if not output.select(max(0.0, deadline - time.monotonic())):
                raise TimeoutError
            part = os.read(worker.stdout.fileno(), 2**16)
            if not part:
                worker.wait()  # its own code, before it is ended
                raise ConnectionError
            answer += part
    return answer


def end_all(workers: list[subprocess.Popen[bytes]]) -> None:
    for worker in workers:
        worker.kill()
        worker.wait()
        for pipe in (worker.stdin, worker.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
    workers.clear()
