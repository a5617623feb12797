"""The C++ planner under the sanitizers: `native/stress`, built by the compiler alone and run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import background

NATIVE = Path(__file__).parents[2] / "plugins" / "adaptive" / "native"
COMPILER = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
BUILDS: dict[Path, background.Background] = {}

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


def start_in_background(folder: Path) -> None:
    """Building takes most of the time."""
    if COMPILER is None:
        return
    sources = [path for path in sorted(NATIVE.rglob("*.cpp")) if path.parent.name != "bindings"]
    flags = ["-std=c++17", f"-I{NATIVE}", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fno-omit-frame-pointer"]
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-D_GLIBCXX_ASSERTIONS"]
    program = folder / "stress"
    BUILDS[program] = background.start([COMPILER, *flags, *sanitizers, *sources, "-o", program], folder / "stress.log")


@pytest.mark.parametrize("seed", ["1", "2"])
def test_the_planner_is_clean_and_keeps_its_promises_under_load(seed: str) -> None:
    ((program, build),) = BUILDS.items()
    errors = build.output(timeout=300)
    assert build.process.returncode == 0, errors
    run = subprocess.run([program, seed], capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout == "stress: ok\n"
    assert run.stderr == ""
