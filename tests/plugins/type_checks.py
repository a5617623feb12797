"""`mypy --strict` as an author runs it. All tests share a cache: most of the time goes into torch and the core."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import pytest


def check_types(
    paths: Iterable[Path | str], folder: Path, factory: pytest.TempPathFactory, env: Mapping[str, str] | None = None
) -> None:
    """Of files in `folder`. One process at a time, since those of a parallel run share the cache, too."""
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", shared / "mypy_cache", *paths]
    with (shared / "mypy.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
