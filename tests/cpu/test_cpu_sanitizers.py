"""The stress test of the native code (`native/stress`) under the sanitizers.

With amx_emulated, which checks the code for AMX tiles on processors without them.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from native_builds import kept

PLUGIN = Path(__file__).parents[2] / "plugins" / "cpu"
# Instruction sets share most of their code: portable and emulated AMX are enough while developing. Threads share memory
# in the same way on all of them, so the thread sanitizer gets one.
WITHOUT_AVX512 = ["-DCPU_HAS_AVX512=OFF", "-DCPU_HAS_AVX512_BF16=OFF", "-DCPU_HAS_AMX=OFF"]

pytestmark = pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake")


def built(sanitizers: str, without: list[str]) -> Path:
    options = ["-DCPU_STRESS=ON", "-DCPU_EMULATE_AMX=ON", f"-DCPU_SANITIZE={sanitizers}", *without]  # the last counts

    def build(folder: Path) -> None:
        for arguments in (["-S", PLUGIN, "-B", folder, *options], ["--build", folder, "--parallel", "1"]):
            run = subprocess.run(["cmake", *arguments], capture_output=True, text=True, timeout=600, check=False)
            assert run.returncode == 0, run.stdout + run.stderr

    name = f"cpu-stress-{sanitizers.replace(',', '-')}-{len(without)}"
    return kept(name, [PLUGIN / "CMakeLists.txt", *PLUGIN.glob("native/**/*.[ch]pp")], options, build) / "stress"


@pytest.mark.parametrize(
    ("sanitizers", "without"),
    [
        ("thread", [*WITHOUT_AVX512, "-DCPU_HAS_AVX2=OFF", "-DCPU_EMULATE_AMX=OFF"]),
        ("address,undefined", [*WITHOUT_AVX512, "-DCPU_HAS_AVX2=OFF"]),
        pytest.param("thread", WITHOUT_AVX512, marks=pytest.mark.sweep),
        pytest.param("address,undefined", [], marks=pytest.mark.sweep),
    ],
)
def test_the_kernels_are_clean_under_load(sanitizers: str, without: list[str]) -> None:
    program = built(sanitizers, without)
    run = subprocess.run([program, "3"], capture_output=True, text=True, timeout=300, check=False)
    if "unexpected memory mapping" in run.stderr:
        pytest.skip("this kernel's address layout is unknown to the thread sanitizer")
    assert run.returncode == 0, run.stdout + run.stderr
    last = run.stdout.splitlines()[-1]  # behind the bits of sets that are compared
    assert last.startswith("stress: ok with ")
    assert "portable" in last
    assert run.stderr == ""
