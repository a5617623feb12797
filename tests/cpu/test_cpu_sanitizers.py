"""The stress test of the native code (`native/stress`) under the sanitizers.

With amx_emulated, which checks the code for AMX tiles on processors without them.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

import background

PLUGIN = Path(__file__).parents[2] / "plugins" / "cpu"
SANITIZERS = ["thread", "address,undefined"]

pytestmark = pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake")


class Build(NamedTuple):
    directory: Path
    process: background.Background


BUILDS: dict[str, Build] = {}


def start_in_background(folder: Path) -> None:
    """Building takes most of the time."""
    if shutil.which("cmake") is None:
        return
    for sanitizers in SANITIZERS:
        directory = folder / sanitizers.partition(",")[0]
        options = "-DCPU_STRESS=ON", "-DCPU_EMULATE_AMX=ON", f"-DCPU_SANITIZE={sanitizers}"
        configure = shlex.join(["cmake", "-S", str(PLUGIN), "-B", str(directory), *options])
        build = shlex.join(["cmake", "--build", str(directory), "--parallel", "1"])
        log = folder / f"{directory.name}.log"
        BUILDS[sanitizers] = Build(directory, background.start(["sh", "-c", f"{configure} && {build}"], log))


@pytest.mark.parametrize("sanitizers", SANITIZERS)
def test_the_kernels_are_clean_under_load(sanitizers: str) -> None:
    directory, build = BUILDS[sanitizers]
    output = build.output(timeout=600)
    assert build.process.returncode == 0, output
    run = subprocess.run([directory / "stress", "3"], capture_output=True, text=True, timeout=300, check=False)
    if "unexpected memory mapping" in run.stderr:
        pytest.skip("this kernel's address layout is unknown to the thread sanitizer")
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.startswith("stress: ok with ")
    assert "portable" in run.stdout
    assert run.stderr == ""
