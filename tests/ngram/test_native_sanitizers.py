"""The C++ index under the sanitizers: `native/stress`, built by the compiler alone and run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

NATIVE = Path(__file__).parents[2] / "plugins" / "ngram" / "native"
COMPILER = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
SANITIZERS = ["thread", "address,undefined"]

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Both at once: they take most of the time. The program has its sanitizers' name."""
    assert COMPILER is not None
    directory = tmp_path_factory.mktemp("stress")
    sources = [str(path) for path in sorted(NATIVE.rglob("*.cpp")) if path.parent.name != "bindings"]
    flags = ["-std=c++17", f"-I{NATIVE}", "-g", "-O1", "-ffp-contract=off", "-fno-omit-frame-pointer"]
    building = {}
    for name in SANITIZERS:
        command = [COMPILER, *flags, "-fno-sanitize-recover=all", f"-fsanitize={name}", "-pthread", *sources]
        command += ["-o", str(directory / name)]
        building[name] = subprocess.Popen(command, cwd=directory, stderr=subprocess.PIPE, text=True)
    yield building
    for build in building.values():
        build.kill()
        build.communicate()


@pytest.mark.parametrize("sanitizers", SANITIZERS)
def test_the_index_is_clean_under_load(builds: dict[str, subprocess.Popen[str]], sanitizers: str) -> None:
    build = builds[sanitizers]
    _, errors = build.communicate(timeout=300)
    assert build.returncode == 0, errors
    assert isinstance(build.args, list)
    run = subprocess.run([build.args[-1], "3"], capture_output=True, text=True, timeout=300, check=False)
    if "unexpected memory mapping" in run.stderr:
        pytest.skip("this kernel's address layout is unknown to the thread sanitizer")
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout == "stress: ok\n"
    assert run.stderr == ""
