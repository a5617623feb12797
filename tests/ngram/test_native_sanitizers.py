"""The C++ index under the sanitizers: `native/stress`, built by the compiler alone and run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import background

NATIVE = Path(__file__).parents[2] / "plugins" / "ngram" / "native"
COMPILER = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
SANITIZERS = ["thread", "address,undefined"]

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


PROGRAMS: dict[str, Path] = {}
BUILDS: dict[str, background.Background] = {}


def start_in_background(folder: Path) -> None:
    """Building takes most of the time."""
    if COMPILER is None:
        return
    sources = [path for path in sorted(NATIVE.rglob("*.cpp")) if path.parent.name != "bindings"]
    flags = ["-std=c++17", f"-I{NATIVE}", "-g", "-O1", "-ffp-contract=off", "-fno-omit-frame-pointer"]
    for name in SANITIZERS:
        program = PROGRAMS[name] = folder / name.partition(",")[0]
        command = [COMPILER, *flags, "-fno-sanitize-recover=all", f"-fsanitize={name}", "-pthread", *sources]
        BUILDS[name] = background.start([*command, "-o", program], folder / f"{program.name}.log")


@pytest.mark.parametrize("sanitizers", SANITIZERS)
def test_the_index_is_clean_under_load(sanitizers: str) -> None:
    build = BUILDS[sanitizers]
    errors = build.output(timeout=300)
    assert build.process.returncode == 0, errors
    run = subprocess.run([PROGRAMS[sanitizers], "3"], capture_output=True, text=True, timeout=300, check=False)
    if "unexpected memory mapping" in run.stderr:
        pytest.skip("this kernel's address layout is unknown to the thread sanitizer")
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout == "stress: ok\n"
    assert run.stderr == ""
