"""What `make` shows while it compiles a native plugin."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

FOLDER = Path(__file__).parents[2] / "plugins"
sys.path.append(str(FOLDER))

import build_native  # noqa: E402  # a script beside the plugins

if TYPE_CHECKING:
    import pytest

NINJA = """\
  Running command Building editable for specserve-plugin-ngram (pyproject.toml)
  [1/3] Building CXX object CMakeFiles/_native.dir/native/index/suffixes.cpp.o
  [2/3] Building CXX object CMakeFiles/nanobind-static.dir/work/site-packages/nanobind/src/nb_func.cpp.o
  [3/3] Linking CXX shared module _native.cpython-311-x86_64-linux-gnu.so
  -- Detecting CXX compiler ABI info [done]
"""
MAKE = "[ 50%] Building CXX object CMakeFiles/_native.dir/native/index/suffixes.cpp.o\n"
SCRIPT = """
import sys
sys.path.append({folder!r})
import build_native
build_native.PIP = ("-c", {pip!r})
sys.exit(build_native.main("ngram"))
"""


def build(pip: str) -> subprocess.CompletedProcess[str]:
    """The script, with a program in pip's place."""
    script = SCRIPT.format(folder=str(FOLDER), pip=pip)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


def test_steps_of_ninja_and_make_are_read() -> None:
    assert list(map(str, build_native.steps(NINJA.splitlines(keepends=True)))) == [
        "1 of 3, building suffixes.cpp",
        "2 of 3, building nb_func.cpp",
        "3 of 3, linking _native.cpython-311-x86_64-linux-gnu.so",
    ]
    assert list(map(str, build_native.steps([MAKE]))) == ["50 %, building suffixes.cpp"]


def test_a_log_gets_a_line_every_few_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    show = build_native.NowAndThen("ngram")
    for second in range(12):
        show(build_native.Step(f"{second} of 12", "Building", "a.cpp"), second)
    assert capsys.readouterr().out.splitlines() == [
        f"ngram: {second} of 12, building a.cpp, {second} s" for second in (0, 5, 10)
    ]


def test_a_build_says_what_it_compiles_and_when_it_is_done() -> None:
    done = build(f"print({NINJA!r})")
    first, step, last = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert first == "== building the ngram plugin (C++): fetching what builds it"
    assert step.startswith("ngram: 1 of 3, building suffixes.cpp, ")
    assert last.startswith("== built the ngram plugin in ")


def test_a_build_that_fails_shows_everything_and_fails() -> None:
    done = build("import sys; print('cache.cpp:3: error: no semicolon'); sys.exit(4)")
    assert done.returncode == 4
    assert "cache.cpp:3: error: no semicolon" in done.stdout
    assert "the ngram plugin could not be built" in done.stderr
