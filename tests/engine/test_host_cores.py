"""Which cores the process may run on, with what each system tells of it."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

from specserve.host_cores import usable_core_numbers, usable_cores


@pytest.fixture(autouse=True)
def six_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 6)


def forbidden(process: int) -> NoReturn:
    raise PermissionError(1, "Operation not permitted")


def test_only_the_cores_that_the_system_allows_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {5, 2, 3}, raising=False)
    assert (usable_core_numbers(), usable_cores()) == ([2, 3, 5], 3)


def test_all_cores_are_used_where_the_system_has_no_affinity_as_on_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert (usable_core_numbers(), usable_cores()) == (list(range(6)), 6)


def test_all_cores_are_used_where_a_sandbox_forbids_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", forbidden, raising=False)
    assert usable_cores() == 6


def test_one_core_is_used_where_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores() == 1
