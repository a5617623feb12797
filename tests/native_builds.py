"""Programs that tests compile, kept under build/ by a hash of their sources and of how they are compiled."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

COMPILER = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
"""The one that CMake takes; None where there is none."""
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
    """With its time: an upgrade is another compiler."""
    resolved = Path(COMPILER or "").resolve()
    return f"{resolved} {resolved.stat().st_mtime_ns if resolved.is_file() else 0}"


def compiled_stress(name: str, native: Path, flags: Sequence[object]) -> Path:
    """The stress program of a plugin's C++, without its bindings, built by the compiler alone."""

    def build(folder: Path) -> None:
        assert COMPILER is not None
        sources = [path for path in sorted(native.rglob("*.cpp")) if path.parent.name != "bindings"]
        command = [COMPILER, *flags, *sources, "-o", folder / "stress"]
        run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert run.returncode == 0, run.stderr

    return kept(name, native.rglob("*.[ch]pp"), flags, build) / "stress"
