"""The process that validates: where the system does not bound its memory, and in a server with many connections."""

from __future__ import annotations

import io
import json
import os
import resource
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NoReturn

import pytest

from specserve_grammar import validation_worker
from specserve_grammar.errors import ValidationError
from specserve_grammar.validator import Validator

if TYPE_CHECKING:
    from collections.abc import Iterator

MANY = 1200
"""More files than `select` can wait for."""
UNIQUE = json.dumps({"type": "array", "uniqueItems": True})


def refused(kind: int, limits: tuple[int, int]) -> NoReturn:
    raise ValueError("current limit exceeds maximum limit")


def test_a_system_that_refuses_the_limit_on_memory_validates_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As macOS does: a process has more addresses there than the limit allows, whatever it uses."""
    monkeypatch.setattr(resource, "setrlimit", refused)
    monkeypatch.setattr(sys, "argv", ["validation_worker.py", "1000"])
    asked = [json.dumps({"schema": UNIQUE, "value": value}) for value in ("[1, 2]", "[1, 1]")]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(asked)))
    validation_worker.main()
    valid, invalid = map(json.loads, capsys.readouterr().out.splitlines())
    assert valid == {"errors": []}
    assert invalid["errors"][0][1:] == [[], ["uniqueItems"]]


def test_answers_are_validated_where_the_server_has_more_than_a_thousand_open_files() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], 2 * MANY), before[1]))
    try:
        with ExitStack() as files:
            for _ in range(MANY):
                files.enter_context(open(os.devnull))
            assert Validator().errors(UNIQUE, "[1, 2]") == []
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextmanager
def no_file_left() -> Iterator[None]:
    """This process can open no file more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open(os.devnull) as file:
        lowest = file.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_worker_that_runs_validates_on_where_the_server_can_open_no_file_more() -> None:
    validator = Validator()
    assert validator.errors(UNIQUE, "[1, 2]") == []
    worker = validator.workers[0]
    with no_file_left():
        found = validator.errors(UNIQUE, "[1, 2]")
    assert found == []
    assert validator.workers == [worker]


def test_a_worker_that_cannot_be_started_is_a_failed_validation() -> None:
    validator = Validator()
    with no_file_left(), pytest.raises(ValidationError, match=r"cannot be started: .*Too many open files"):
        validator.errors(UNIQUE, "[1, 2]")
    assert validator.errors(UNIQUE, "[1, 2]") == []
