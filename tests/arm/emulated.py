"""Runs programs for aarch64 under qemu-user, as a processor of a name that qemu knows."""

from __future__ import annotations

import os
import subprocess
from shutil import which

from places import OVERLAY, PURE, ROOT, SITE, SYSROOT

PLAIN, NEWEST = "cortex-a57", "max"
"""Armv8.0 without any extension of arithmetic; all that this qemu emulates."""
PROCESSORS = (PLAIN, NEWEST)
PYTHON = SYSROOT / "usr" / "bin" / "python3"
SOURCES = (*(ROOT / folder / "src" for folder in PURE), ROOT / "tests")


def program(processor: str, *command: object, seconds: float) -> subprocess.CompletedProcess[str]:
    """Its end, within a time limit; it finds the plugins for aarch64 where it is a Python."""
    path = os.pathsep.join(map(str, (OVERLAY, SITE, *SOURCES)))
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONNOUSERSITE": "1"}
    return subprocess.run(
        [qemu(), "-cpu", processor, "-L", str(SYSROOT), *map(str, command)],
        capture_output=True, text=True, timeout=seconds, cwd=ROOT, env=environment, check=False,
    )  # fmt: skip


def python(processor: str, *arguments: object, seconds: float) -> str:
    """What it wrote to stdout. It must succeed."""
    run = program(processor, PYTHON, *arguments, seconds=seconds)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def qemu() -> str:
    found = which("qemu-aarch64")
    assert found is not None, "make test-arm installs it"
    return found
