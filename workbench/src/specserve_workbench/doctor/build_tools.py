"""What builds native plugins from their sources: nothing of it is needed to serve."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from specserve_workbench.doctor.rows import Row, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specserve_workbench.doctor.case import Case

COMPILERS = ("c++", "g++", "clang++")
"""Where CMake looks, unless CXX names one."""
FOR_SOURCES = "needed only where a native plugin is built from its sources"
SECONDS = 10


def build_tool_rows(case: Case) -> list[Row]:
    return rows_of(case, compiler, python_headers, git)


def compiler(case: Case) -> Iterator[Row]:
    names = (os.environ["CXX"],) if os.environ.get("CXX") else COMPILERS
    for name in names:
        version = first_line([*shlex.split(name), "--version"])
        if version:
            yield Row("compiler", "ok", f"{name}: {version}")
            return
    how = "xcode-select --install" if platform.system() == "Darwin" else "apt install g++"
    yield Row("compiler", "note", f"none for C++ ({', '.join(names)})", f"{FOR_SOURCES}: {how}")


def python_headers(case: Case) -> Iterator[Row]:
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if header.is_file():
        yield Row("python headers", "ok", str(header.parent))
    else:
        how = (
            "install Python from python.org or Homebrew" if platform.system() == "Darwin" else "apt install python3-dev"
        )
        yield Row("python headers", "note", f"no {header}", f"{FOR_SOURCES}: {how}")


def git(case: Case) -> Iterator[Row]:
    version = first_line(["git", "--version"])
    if version:
        yield Row("git", "ok", version)
    else:
        yield Row("git", "note", "not found", "needed only where packages are installed from repositories")


def first_line(command: list[str]) -> str:
    """Of what it prints; empty where it does not run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return (done.stdout.splitlines() or [""])[0].strip()
