"""The C++ planner under the sanitizers: `native/stress`, built by the compiler alone and run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from native_builds import COMPILER, compiled_stress

NATIVE = Path(__file__).parents[2] / "plugins" / "adaptive" / "native"

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


FLAGS = ("-std=c++17", f"-I{NATIVE}", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fno-omit-frame-pointer")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-D_GLIBCXX_ASSERTIONS")


@pytest.fixture(scope="module")
def program() -> Path:
    return compiled_stress("adaptive-stress", NATIVE, (*FLAGS, *SANITIZERS))


@pytest.mark.parametrize("seed", ["1", "2"])
def test_the_planner_is_clean_and_keeps_its_promises_under_load(program: Path, seed: str) -> None:
    run = subprocess.run([program, seed], capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout == "stress: ok\n"
    assert run.stderr == ""
