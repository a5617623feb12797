"""Programs that tests compile, kept under build/ by a hash of their sources and of how they are compiled."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

BUILD = Path(__file__).parents[1] / "build" / "tests"


def kept(name: str, sources: Iterable[Path], options: Sequence[object], build: Callable[[Path], None]) -> Path:
    """The folder that `build` filled, now or earlier. `options`: all that the result depends on beside the sources and
    the compiler. An older one of this name is deleted."""
    key = hashlib.sha256(repr([*map(str, options), compiler()]).encode())
    for path in sorted(sources):
        key.update(str(path).encode() + b"\0" + path.read_bytes())
    folder = BUILD / f"{name}-{key.hexdigest()[:16]}"
    if not (folder / "built").exists():
        for older in BUILD.glob(f"{name}-*"):
            shutil.rmtree(older)
        folder.mkdir(parents=True)
        build(folder)
        (folder / "built").touch()
    return folder


def compiler() -> str:
    """The one that CMake takes, with its time: an upgrade is another compiler."""
    path = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++") or ""
    resolved = Path(path).resolve()
    return f"{resolved} {resolved.stat().st_mtime_ns if resolved.is_file() else 0}"
