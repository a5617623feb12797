"""Processes that take long and need nothing of the tests before them: started with the session, on the idle core.

A test module that has such work defines `start_in_background(folder)`; its tests run last (see conftest). Whatever
still runs when the session ends is killed, with its children.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import ModuleType

    import pytest

FOLDERS: list[Path] = []
RUNNING: list[Background] = []


class Background(NamedTuple):
    """A process of low priority, and the file that its output goes to."""

    process: subprocess.Popen[bytes]
    log: Path

    def output(self, timeout: float) -> str:
        """All of it, when the process has ended."""
        self.process.wait(timeout)
        return self.log.read_text(errors="replace")


def start(command: Iterable[str | Path], log: Path, environment: Mapping[str, str] | None = None) -> Background:
    nice = ["nice", "-n", "15"] if shutil.which("nice") else []
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*nice, *command], stdout=file, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
    RUNNING.append(Background(process, log))
    return RUNNING[-1]


def has_background(module: ModuleType | None) -> bool:
    return hasattr(module, "start_in_background")


def last(items: list[pytest.Item]) -> list[pytest.Item]:
    """Tests that wait for such work come after all others."""
    return sorted(items, key=lambda item: has_background(getattr(item, "module", None)))


def start_all(items: Iterable[pytest.Item]) -> None:
    for module in {getattr(item, "module", None) for item in items}:
        if module is not None and has_background(module):
            FOLDERS.append(Path(mkdtemp(prefix="specserve-tests-")))
            module.start_in_background(FOLDERS[-1])


def end_all() -> None:
    for background in RUNNING:
        if background.process.poll() is None:
            os.killpg(background.process.pid, signal.SIGKILL)
            background.process.wait()
    for folder in FOLDERS:
        shutil.rmtree(folder, ignore_errors=True)
