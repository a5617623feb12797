"""The stress test of the native code (`native/stress`) on 64-bit ARM, cross-compiled and emulated."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from native_builds import kept

PLUGIN = Path(__file__).parents[2] / "plugins" / "cpu"
COMPILER, EMULATOR, LIBRARIES = "aarch64-linux-gnu-g++", "qemu-aarch64", "/usr/aarch64-linux-gnu"
OPTIONS = [
    *("-DCPU_STRESS=ON", "-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64"),
    f"-DCMAKE_CXX_COMPILER={COMPILER}",
]

pytestmark = [
    pytest.mark.sweep,
    pytest.mark.skipif(
        not all(map(shutil.which, ("cmake", COMPILER, EMULATOR))), reason=f"no cmake, {COMPILER} or {EMULATOR}"
    ),
]


def build(folder: Path) -> None:
    for arguments in (["-S", PLUGIN, "-B", folder, *OPTIONS], ["--build", folder, "--parallel", "2"]):
        run = subprocess.run(["cmake", *arguments], capture_output=True, text=True, timeout=3600, check=False)
        assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize(
    ("processor", "sets"),
    [("cortex-a57", "neon portable"), ("max", "neon_bf16 neon_i8mm neon_dot neon portable")],
)
def test_the_kernels_hold_on_every_instruction_set_that_a_processor_has(processor: str, sets: str) -> None:
    sources = [PLUGIN / "CMakeLists.txt", *PLUGIN.glob("native/**/*.[ch]pp")]
    program = kept("cpu-stress-arm", sources, OPTIONS, build) / "stress"
    run = subprocess.run(
        [EMULATOR, "-L", LIBRARIES, "-cpu", processor, program, "0"],
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.endswith(f"stress: ok with {sets}\n")
