"""What `make` says where the native plugins cannot be built."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PREFLIGHT = Path(__file__).parents[2] / "plugins" / "preflight.py"


def run(**environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PREFLIGHT), "cpu"], env=os.environ | environ, capture_output=True, text=True, check=False
    )


def test_a_machine_that_built_the_plugins_lacks_nothing() -> None:
    found = run()
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def test_a_missing_compiler_is_named_with_what_to_do() -> None:
    lacking = run(CXX="no-such-compiler -v")
    assert lacking.returncode == 1
    assert "there is no C++ compiler (no-such-compiler -v); apt install g++" in lacking.stderr
    assert lacking.stderr.count("\n") == 1


def test_no_compiler_anywhere_names_those_that_were_tried() -> None:
    assert "(c++, g++, clang++)" in run(CXX="", PATH="/nowhere").stderr
