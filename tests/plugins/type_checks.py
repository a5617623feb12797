"""`mypy --strict` as an author runs it. All tests share a cache, which is kept: most of the time goes into torch and
the core, and mypy sees itself what has changed."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from typing import TYPE_CHECKING

from native_builds import BUILD

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

CACHE = BUILD / "mypy"


def check_types(paths: Iterable[Path | str], folder: Path, env: Mapping[str, str] | None = None) -> None:
    """Of files in `folder`. One process at a time, since those of a parallel run share the cache, too."""
    CACHE.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", CACHE, *paths]
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
