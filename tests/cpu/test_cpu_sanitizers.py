"""The stress test of the native code (`native/stress`) under the sanitizers.

With amx_emulated, which checks the code for AMX tiles on processors without them.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PLUGIN = Path(__file__).parents[2] / "plugins" / "cpu"
SANITIZERS = ["thread", "address,undefined"]

pytestmark = pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake")


class Build(NamedTuple):
    directory: Path
    process: subprocess.Popen[str]


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Build]]:
    """Both are built at once: that takes most of the time."""
    building = {}
    for sanitizers in SANITIZERS:
        directory = tmp_path_factory.mktemp("stress")
        configure = ["cmake", "-S", str(PLUGIN), "-B", str(directory), "-DCPU_STRESS=ON", "-DCPU_EMULATE_AMX=ON"]
        subprocess.run([*configure, f"-DCPU_SANITIZE={sanitizers}"], check=True, capture_output=True, timeout=300)
        command = ["cmake", "--build", str(directory), "--parallel", "1"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        building[sanitizers] = Build(directory, process)
    yield building
    for build in building.values():
        build.process.kill()
        build.process.communicate()


@pytest.mark.parametrize("sanitizers", SANITIZERS)
def test_the_kernels_are_clean_under_load(builds: dict[str, Build], sanitizers: str) -> None:
    directory, process = builds[sanitizers]
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    run = subprocess.run([directory / "stress", "3"], capture_output=True, text=True, timeout=300, check=False)
    if "unexpected memory mapping" in run.stderr:
        pytest.skip("this kernel's address layout is unknown to the thread sanitizer")
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.startswith("stress: ok with ")
    assert "portable" in run.stdout
    assert run.stderr == ""
