"""The programs that run and compile code for aarch64: which are missing, and how they are installed.

Run: `python tools.py`. Exit code 1, with a sentence, where `make test-arm` cannot run or would have to install some.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from shutil import which

PACKAGES = {"qemu-aarch64": "qemu-user", "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu"}
"""Debian's package for each program."""


class PrepareError(Exception):
    """What `make test-arm` lacks here, and what to do."""


def missing() -> list[str]:
    return [program for program in PACKAGES if which(program) is None]


def impossible() -> str | None:
    """Why `make test-arm` cannot run on this machine, whatever is installed."""
    if platform.machine() in ("aarch64", "arm64"):
        return "this machine is an aarch64 itself: make test runs everything there, without qemu"
    if which("apt-get") is None:
        return "apt-get is needed, which brings a Python for aarch64: run it on Debian"
    return None


def left_out() -> str | None:
    """Why `make test-all` goes on without `make test-arm`: it installs nothing."""
    if reason := impossible():
        return reason
    if programs := missing():
        return f"there is no {' and no '.join(programs)}. It installs them where it is root"
    return None


def require() -> None:
    """Has all of them from now on, or says why it cannot be."""
    if reason := impossible():
        raise PrepareError(reason)
    if not (programs := missing()):
        return
    packages = [PACKAGES[program] for program in programs]
    if os.geteuid() != 0:
        command = f"apt-get install {' '.join(packages)}"
        raise PrepareError(f"there is no {' and no '.join(programs)}; as root, `{command}` brings them")
    print(f"== apt-get install {' '.join(packages)}", flush=True)
    for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *packages]):
        subprocess.run(["apt-get", "-o", "DPkg::Lock::Timeout=600", *command], check=False)
    if still := missing():
        raise PrepareError(f"apt-get brought no {' and no '.join(still)}; its output above says why")


def gpp() -> Path:
    found = which("aarch64-linux-gnu-g++")
    assert found is not None, "`require` was called"
    return Path(found)


if __name__ == "__main__" and (why := left_out()):
    sys.exit(f"== make test-arm is left out: {why}.")
